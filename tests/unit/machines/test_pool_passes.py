"""When passes begin, and which planned machines they launch."""

from grange.api.kinds.machine import MachineSpec
from grange.base.rng import Stream
from grange.machines.controller.launch_choice import launch_choice, without_starts
from grange.machines.controller.pass_window import PassWindow
from grange.machines.scaling_plan import MachineStart, PodSkip, ScalingPlan


def window() -> PassWindow:
    return PassWindow(idle_s=1.0, max_s=10.0, interval_s=15.0, now=100.0)


def test_a_pass_follows_a_quiet_second() -> None:
    changes = window()
    changes.changed(101.0)
    assert changes.due == 102.0
    changes.changed(101.5)
    assert changes.due == 102.5


def test_changes_without_end_do_not_put_it_off() -> None:
    changes = window()
    for tenth in range(120):
        changes.changed(101.0 + tenth / 10)
    assert changes.due == 111.0


def test_without_changes_it_is_periodic() -> None:
    changes = window()
    assert changes.due == 115.0
    changes.changed(101.0)
    changes.begin(102.0)
    assert changes.due == 117.0


def starts(count: int) -> list[MachineStart]:
    return [MachineStart(f"m{number}", MachineSpec()) for number in range(count)]


def test_few_launches_keep_the_order_of_the_plan() -> None:
    planned = starts(10)
    assert launch_choice(planned, 10, Stream(1), list) == tuple(planned)


def test_many_launches_are_capped_and_none_starves() -> None:
    """Ten machines that can never be launched do not keep the others from it."""
    rng = Stream(1)
    seen: set[str] = set()
    for _ in range(20):
        chosen = launch_choice(starts(25), 10, rng, list)
        assert len({one.name for one in chosen}) == 10
        seen.update(one.name for one in chosen)
    assert len(seen) == 25


def test_a_lease_is_skipped_once_where_its_machines_are_refused() -> None:
    spec = MachineSpec(pool="p")
    plan = ScalingPlan(
        start=tuple(MachineStart(f"m{n}", spec, reason="l waits", lease_uid="l") for n in range(2))
    )
    assert without_starts(plan, lambda start: "") == plan
    found = without_starts(plan, lambda start: "too many calls")
    assert found.start == ()
    assert found.skip == (PodSkip("", "l", "l waits: too many calls", ("p",)),)
