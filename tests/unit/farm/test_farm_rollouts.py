"""Who reports a rollout that failed: the process that carries rollouts out, and its successor."""

from tests.support.farm_fixtures import NAMESPACE, create
from tests.support.memory_sink import MemorySink

from grange.api.kinds import ROLLINGUPDATE
from grange.app.manager import Manager
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.sim.world import World


class Process:
    """A manager that carries out rollouts alone; no pods are made."""

    def __init__(self, deps: Deps, name: str, sink: MemorySink) -> None:
        names = frozenset({"rollingupdate"})
        self._manager = Manager(FarmConfig(member=name), lambda _: deps, names, alert_sink=sink)

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for role in self._manager.runnables():
                nursery.start(role.run(), name=role.name)


async def test_one_member_reports_a_failed_rollout_and_next_continues(
    world: World, clock: Clock
) -> None:
    reported = {"a": MemorySink(), "b": MemorySink()}
    world.add("a", lambda deps: Process(deps, "a", reported["a"]))
    world.add("b", lambda deps: Process(deps, "b", reported["b"]))
    await create(world, "one", replicas=3)
    await create(world, "two", replicas=0)
    spec = {"old": "one", "new": "two", "desired": 3, "minimum": 2, "progressDeadlineSeconds": 30}
    document = {"metadata": {"name": "roll", "namespace": NAMESPACE}, "spec": spec}
    await world.client.create(ROLLINGUPDATE, document)
    await clock.sleep(90)

    def tellers() -> list[str]:
        about = ("rollingupdate/default/roll", "RolloutFailed")
        return [
            name
            for name, memory in reported.items()
            if [(alert.about, alert.reason) for alert in memory.active] == [about]
        ]

    assert len(tellers()) == 1
    (first,) = tellers()
    (second,) = set(reported) - {first}
    assert reported[second].history == []
    reported[first] = MemorySink()  # what it reported went with it
    world.crash(first)
    await clock.sleep(60)
    assert tellers() == [second]
    await world.client.delete(ROLLINGUPDATE, "roll", NAMESPACE)
    await clock.sleep(30)
    assert tellers() == []
