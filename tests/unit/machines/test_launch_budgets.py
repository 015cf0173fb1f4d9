"""Launches by offering: few at first, one after a shortage, pauses where the provider asks for fewer calls."""

from datetime import timedelta

from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.machines.scaling import NOW

from grange.api.kinds.machine import MachineOffering, MachineSpec
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.launch_budgets import (
    FIRST,
    MOST,
    PAUSE_MAX_S,
    PAUSE_S,
    LaunchBudgets,
    offering_of,
)
from grange.machines.providers.provider import Instance
from grange.machines.providers.simulated.cloud_faults import CloudFault
from grange.machines.scaling_plan import MachineStart

SMALL = ("small", "a", False)
SMALLS = MachineSpec(candidates=(MachineOffering("small", "a"), MachineOffering("large", "a")))
LARGES = MachineSpec(candidates=(MachineOffering("large", "a", spot=True),))


def starts(count: int, spec: MachineSpec = SMALLS) -> list[MachineStart]:
    return [MachineStart(f"{spec.candidates[0].instance_type}{at}", spec) for at in range(count)]


def launched(budgets: LaunchBudgets, kind: str = "small", zone: str = "a") -> None:
    budgets.taken(SMALL, Instance("i", "m", instance_type=kind, zone=zone))


def allowed(budgets: LaunchBudgets, launching: int = 0) -> int:
    return len(budgets.affordable(starts(2 * MOST), [SMALLS] * launching))


def test_offering_of_a_machine_is_its_first_candidate() -> None:
    assert offering_of(SMALLS) == SMALL
    assert offering_of(MachineSpec(instance_type="small")) == ("small", "", False)


def test_each_launch_doubles_the_budget() -> None:
    budgets = LaunchBudgets()
    assert allowed(budgets) == FIRST
    launched(budgets)
    assert allowed(budgets) == 2 * FIRST
    assert allowed(budgets, launching=FIRST) == FIRST
    for _ in range(20):
        launched(budgets)
    assert allowed(budgets) == MOST


def test_shortage_leaves_one_launch_of_its_offering() -> None:
    budgets = LaunchBudgets()
    budgets.short(SMALL)
    mixed = [*starts(5), *starts(5, LARGES)]
    names = [start.name for start in budgets.affordable(mixed, [])]
    assert names == ["small0", *(f"large{at}" for at in range(5))]
    assert [*budgets.affordable(mixed, [SMALLS])] == mixed[5:]
    launched(budgets)
    assert allowed(budgets) == 2


def test_launch_of_another_offering_proves_nothing_of_the_first() -> None:
    budgets = LaunchBudgets()
    budgets.short(SMALL)
    launched(budgets, "large")
    assert allowed(budgets) == 1


def test_calls_wait_for_each_other() -> None:
    budgets = LaunchBudgets()
    budgets.short(SMALL)
    assert budgets.begin(SMALL)
    assert not budgets.begin(SMALL)
    budgets.end(SMALL)
    assert budgets.begin(SMALL)


def test_pauses_double_and_end_with_a_launch() -> None:
    budgets, now, pauses = LaunchBudgets(), NOW, []
    for _ in range(7):
        budgets.throttled(SMALL, 0.0, "slow down", now)
        begun = now
        while budgets.pause(SMALL, now):
            now += timedelta(seconds=1)
        pauses.append((now - begun).total_seconds())
    assert pauses == [min(PAUSE_S * 2**n, PAUSE_MAX_S) for n in range(7)]
    budgets.throttled(SMALL, 0.0, "slow down", now)
    assert budgets.refusal(LARGES, now) == ""
    assert budgets.refusal(SMALLS, now).startswith(
        "small in a: slow down; launches are tried again"
    )
    launched(budgets)
    assert budgets.refusal(SMALLS, now) == ""


def test_pause_that_the_provider_asks_for_is_kept() -> None:
    budgets = LaunchBudgets()
    budgets.throttled(SMALL, 30.0, "slow down", NOW)
    assert budgets.pause(SMALL, NOW + timedelta(seconds=29)) is not None
    assert budgets.pause(SMALL, NOW + timedelta(seconds=30)) is None


class Launches:
    """Counts the launches of a pool, and lets them fail.

    Attributes:
        times: of the launches.
        fault: of each; None: they are done.
    """

    def __init__(self, world: MachineWorld, pool: str, fault: CloudFault | None = None) -> None:
        self.times: list[float] = []
        self.fault = fault
        self._clock, self._prefix = world.clock, f"{pool}-"
        world.cloud.faults = self._judge

    def _judge(self, call: str, subject: str) -> CloudFault | None:
        if call != "launch" or not subject.startswith(self._prefix):
            return None
        self.times.append(self._clock.monotonic())
        return self.fault


async def test_throttled_offering_is_left_alone_and_others_are_not(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        launches = Launches(world, "p", CloudFault.THROTTLE)
        await world.add_pool("p", instanceTypes=["small"], maxBootPerIteration=50)
        await world.add_pool("q", instanceTypes=["medium"], maxBootPerIteration=50)
        for number in range(14):
            await world.add_pod(f"a{number}", "p")
        await world.settle(10.0)
        for number in range(14):
            await world.add_pod(f"b{number}", "q")
        await world.bound(*(f"b{number}" for number in range(14)))
        await world.settle(100.0)
        later = [at for at in launches.times if at > launches.times[0] + 1.0]
        assert len(later) <= 8  # one at a time, and less and less often
        assert any(
            "launches are tried again at" in text for text in await world.events("NoMachine")
        )
        launches.fault = None
        await world.bound(*(f"a{number}" for number in range(14)), limit_s=300.0)


async def test_shortage_costs_one_launch_for_all_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        for zone in ("a", "b"):
            world.cloud.capacity["small", zone, False] = 0
        launches = Launches(world, "p")
        await world.add_pool("p", instanceTypes=["small"], maxBootPerIteration=50)
        for number in range(14):
            await world.add_pod(f"a{number}", "p")
        await world.settle(170.0)
        first = len(launches.times)
        assert 1 <= first <= FIRST
        await world.settle(300.0)
        assert len(launches.times) == first + 1
        for zone in ("a", "b"):
            del world.cloud.capacity["small", zone, False]
        await world.bound(*(f"a{number}" for number in range(14)), limit_s=900.0)
        assert len(await world.machines(MachinePhase.CLAIMED)) == 14
