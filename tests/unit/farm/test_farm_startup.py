"""What a process finds when it begins: F3 of the specification, for one that has seen nothing yet."""

from tests.unit.farm.farmhands import NAMESPACE, create

from grange.api.farm import RESUME_ANNOTATION, RESUME_CONFIGMAP
from grange.api.kinds import CONFIGMAP, POD, REPLICATIONCONTROLLER
from grange.api.meta import Document, ObjectMeta
from grange.app.crew import Crew
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.farm.alerts import MemoryAlerter
from grange.reconcile.farm.config import FarmConfig
from grange.sim.world import World

NAMES = [f"s{number}" for number in range(5)]


class Process:
    """A crew that does replication alone."""

    def __init__(self, deps: Deps, alerter: MemoryAlerter) -> None:
        names = frozenset({"replication"})
        self._crew = Crew(FarmConfig(member="a"), lambda _: deps, names, alerter=alerter)

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for role in self._crew.roles():
                nursery.start(role.run(), name=role.name)


def pod_of(owner: ObjectMeta) -> Document:
    reference = {
        "apiVersion": REPLICATIONCONTROLLER.api_version,
        "kind": REPLICATIONCONTROLLER.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "metadata": {
            "name": f"{owner.name}-0",
            "namespace": NAMESPACE,
            "ownerReferences": [reference],
        },
        "spec": {"containers": [{"name": "main", "command": ["serve"]}]},
    }


async def test_check_f3_new_process_that_finds_all_at_zero_deletes_nothing_until_a_word(
    world: World, clock: Clock
) -> None:
    memory = MemoryAlerter()
    await create(world, *NAMES, replicas=0)
    for obj in (await world.client.list(REPLICATIONCONTROLLER)).items:
        await world.client.create(POD, pod_of(obj.metadata))
    world.add("a", lambda deps: Process(deps, memory))
    await clock.sleep(200)
    assert len((await world.client.list(POD)).items) == len(NAMES)
    held = [alert for alert in memory.active if alert.about == "farm/replication"]
    assert [alert.reason for alert in held] == ["zero_replicas_found"]

    word = {"name": RESUME_CONFIGMAP, "annotations": {RESUME_ANNOTATION: "one"}}
    await world.client.create(CONFIGMAP, {"metadata": word}, "kube-system")
    await clock.sleep(120)
    assert (await world.client.list(POD)).items == []
    assert memory.active == []


async def test_pods_of_others_alarm_nobody_where_services_begin_at_zero(
    world: World, clock: Clock
) -> None:
    memory = MemoryAlerter()
    await create(world, *NAMES, replicas=0)
    for name in NAMES:
        document = pod_of(ObjectMeta(name=name))
        del document["metadata"]["ownerReferences"]
        await world.client.create(POD, document)
    world.add("a", lambda deps: Process(deps, memory))
    await clock.sleep(30)
    assert memory.history == []
