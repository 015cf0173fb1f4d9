"""What the status of a pool shows of the history of its machines."""

from typing import Any

import msgspec
import pytest

from grange.api.kinds.machine import Machine
from grange.machines.controller.pool_status import boot_seconds


def machine(second: int, took_s: int | None, **status: Any) -> Machine:
    """Launched in a second of an hour; joined after so many."""
    found: dict[str, Any] = {"launchTime": f"2026-01-01T00:00:{second:02}Z", **status}
    if took_s is not None:
        joined = f"2026-01-01T00:{(second + took_s) // 60:02}:{(second + took_s) % 60:02}Z"
        initialized = {"type": "Initialized", "status": "True", "lastTransitionTime": joined}
        found["conditions"] = [initialized]
    return msgspec.convert({"metadata": {"name": f"m{second}"}, "status": found}, Machine)


@pytest.mark.parametrize(
    ("boots", "expected"),
    [
        ([], None),
        ([None], None),
        ([30, None, 50, 31], 31),
        ([0], None),  # the clock does not show how long it took
        ([*[10] * 6, *[60] * 6], 60),  # of the last ten
    ],
)
def test_boot_seconds_are_the_median_of_the_last_boots(
    boots: list[int | None], expected: int | None
) -> None:
    machines = [machine(second, took_s) for second, took_s in enumerate(boots)]
    assert boot_seconds(machines) == expected


def test_machine_that_is_switched_off_shows_no_boot() -> None:
    off = {"type": "Initialized", "status": "False", "lastTransitionTime": "2026-01-01T01:00:00Z"}
    assert boot_seconds([machine(0, None, conditions=[off])]) is None
