"""What could not be had lately."""

from datetime import datetime, timedelta

from tests.unit.machines.scaling import NOW, A

from grange.api import timestamps
from grange.machines.scaling.capacity_memory import (
    QUOTA_S,
    SHORTAGE_S,
    WAIT_MAX_S,
    CapacityMemory,
)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def refused(memory: CapacityMemory, seconds: float, zone: str = "z1", *, spot: bool = True) -> bool:
    return memory.refusal("A", zone, spot=spot, now=later(seconds)) is not None


def zones(memory: CapacityMemory, *, spot: bool) -> tuple[str, ...]:
    """Where the type may be tried now."""
    offered = {item.zone for item in A.offerings if item.spot == spot}
    return tuple(zone for zone in sorted(offered) if not refused(memory, 0.0, zone, spot=spot))


def test_f67_a_mark_hides_exactly_its_offering() -> None:
    memory = CapacityMemory()
    memory.refuse("A", "z1", spot=True, now=NOW)
    assert refused(memory, 1)
    assert not refused(memory, 1, spot=False)
    assert not refused(memory, 1, "z2")
    assert memory.refusal("B", "z1", spot=True, now=NOW) is None


def test_f69_zones_shrink_and_a_mark_of_the_type_empties_them() -> None:
    memory = CapacityMemory()
    assert zones(memory, spot=True) == ("z1", "z2")
    memory.refuse("A", "z1", spot=True, now=NOW)
    assert zones(memory, spot=True) == ("z2",)
    assert zones(memory, spot=False) == ("z1", "z2")
    memory.refuse("A", "", spot=True, now=NOW)
    assert zones(memory, spot=True) == ()


def test_a_mark_is_not_extended_while_it_lasts() -> None:
    memory = CapacityMemory()
    memory.refuse("A", "z1", spot=True, now=NOW)
    memory.refuse("A", "z1", spot=True, now=later(SHORTAGE_S - 1))
    assert not refused(memory, SHORTAGE_S)


def test_marks_that_follow_double_up_to_a_bound() -> None:
    memory = CapacityMemory()
    at, wait = 0.0, SHORTAGE_S
    for _ in range(8):
        memory.refuse("A", "z1", spot=True, now=later(at))
        assert refused(memory, at + wait - 1)
        assert not refused(memory, at + wait)
        at, wait = at + wait, min(WAIT_MAX_S, 2 * wait)


def test_a_success_and_a_pause_end_doubling() -> None:
    memory = CapacityMemory()
    memory.refuse("A", "z1", spot=True, now=NOW)
    memory.allow("A", "z1", spot=True)
    memory.refuse("A", "z1", spot=True, now=later(1))
    assert not refused(memory, 1 + SHORTAGE_S)
    memory.refuse("A", "z1", spot=True, now=later(3 * SHORTAGE_S))
    assert not refused(memory, 4 * SHORTAGE_S)


def test_limits_of_the_account_last_longer() -> None:
    memory = CapacityMemory()
    memory.refuse("A", "", spot=False, now=NOW, wait_s=QUOTA_S, reason="quota")
    why = f"quota; tried again at {timestamps.rfc3339(later(QUOTA_S))}"
    assert memory.refusal("A", "z1", spot=False, now=later(60)) == why
    assert memory.refusal("A", "z1", spot=False, now=later(QUOTA_S - 1)) == why


def test_old_marks_are_forgotten() -> None:
    memory = CapacityMemory()
    memory.refuse("A", "z1", spot=True, now=NOW, reason="sold out")
    assert (memory.refusal("A", "z1", spot=True, now=NOW) or "").startswith("sold out;")
    memory.prune(later(2 * SHORTAGE_S))
    assert memory.refusal("A", "z1", spot=True, now=NOW) is None
