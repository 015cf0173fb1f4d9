"""What a process finds when it begins: F3 of the specification, for one that has seen nothing yet."""

import pytest
from tests.support.farm_fixtures import NAMESPACE, create
from tests.support.memory_sink import MemorySink

from grange.api.farm_protocol import RESUME_ANNOTATION, RESUME_CONFIGMAP
from grange.api.kinds import CONFIGMAP, NODE, POD, REPLICATIONCONTROLLER
from grange.api.meta import Document, ObjectMeta
from grange.app.manager import Manager
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.sim.world import World

NAMES = [f"s{number}" for number in range(5)]


class Process:
    """A manager that does replication alone, or what it is given."""

    def __init__(self, deps: Deps, sink: MemorySink, *names: str) -> None:
        self._manager = Manager(
            FarmConfig(member="a"),
            lambda _: deps,
            frozenset(names or {"replication"}),
            alert_sink=sink,
        )

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for role in self._manager.runnables():
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


async def test_check_f3_new_process_with_all_at_zero_deletes_nothing(
    world: World, clock: Clock
) -> None:
    memory = MemorySink()
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


async def test_pods_of_others_raise_no_alert_where_all_is_at_zero(
    world: World, clock: Clock
) -> None:
    memory = MemorySink()
    await create(world, *NAMES, replicas=0)
    for name in NAMES:
        document = pod_of(ObjectMeta(name=name))
        del document["metadata"]["ownerReferences"]
        await world.client.create(POD, document)
    world.add("a", lambda deps: Process(deps, memory))
    await clock.sleep(30)
    assert memory.history == []


@pytest.mark.parametrize("others", [(), ("replication",)])
async def test_check_f1_new_process_without_owners_collects_nothing(
    world: World, clock: Clock, others: tuple[str, ...]
) -> None:
    """A restore that went half-way, a kind that was deleted: the pods that live are all there is."""
    memory = MemorySink()
    for name in NAMES:
        await world.client.create(POD, pod_of(ObjectMeta(name=name, uid=f"uid-{name}")))
    world.add("a", lambda deps: Process(deps, memory, "garbagecollector", *others))
    await clock.sleep(200)
    assert len((await world.client.list(POD)).items) == len(NAMES)
    held = [alert for alert in memory.active if alert.about == "farm/services"]
    assert [alert.reason for alert in held] == ["owners_not_found"]

    word = {"name": RESUME_CONFIGMAP, "annotations": {RESUME_ANNOTATION: "one"}}
    await world.client.create(CONFIGMAP, {"metadata": word}, "kube-system")
    await clock.sleep(120)
    assert (await world.client.list(POD)).items == []
    assert memory.active == []


async def test_garbage_of_one_of_many_controllers_goes_at_startup(
    world: World, clock: Clock
) -> None:
    memory = MemorySink()
    await create(world, "there", replicas=0)
    for name in NAMES:
        await world.client.create(POD, pod_of(ObjectMeta(name=name, uid=f"uid-{name}")))
    world.add("a", lambda deps: Process(deps, memory, "garbagecollector"))
    await clock.sleep(60)
    assert (await world.client.list(POD)).items == []
    assert memory.history == []


async def run_on(world: World, *nodes: str) -> None:
    """Pods on nodes, and the nodes are gone."""
    for node in nodes:
        await add_node(world, node)
    for number, name in enumerate(NAMES):
        document = pod_of(ObjectMeta(name=name))
        del document["metadata"]["ownerReferences"]
        document["spec"]["nodeName"] = nodes[number % len(nodes)]
        await world.client.create(POD, document)
    for node in nodes:
        await world.client.delete(NODE, node)


async def add_node(world: World, name: str) -> None:
    room = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    await world.client.create(NODE, {"metadata": {"name": name}})
    await world.client.patch(
        NODE, name, patch={"status": {"capacity": room, "allocatable": room}}, subresource="status"
    )


async def pods(world: World) -> int:
    return len((await world.client.list(POD)).items)


async def test_check_f1_new_process_without_nodes_removes_no_pods(
    world: World, clock: Clock
) -> None:
    """A store that was restored without its nodes: the pods run, and their agents may be back soon."""
    memory = MemorySink()
    await run_on(world, "a")
    world.add("a", lambda deps: Process(deps, memory, "nodelifecycle"))
    await clock.sleep(200)
    assert await pods(world) == len(NAMES)
    held = [alert for alert in memory.active if alert.about == "farm/services"]
    assert [alert.reason for alert in held] == ["nodes_not_found"]

    word = {"name": RESUME_CONFIGMAP, "annotations": {RESUME_ANNOTATION: "one"}}
    await world.client.create(CONFIGMAP, {"metadata": word}, "kube-system")
    await clock.sleep(120)
    assert await pods(world) == 0
    assert memory.active == []


async def test_nodes_that_come_back_after_a_start_keep_their_pods(
    world: World, clock: Clock
) -> None:
    memory = MemorySink()
    await run_on(world, "a", "b")
    world.add("a", lambda deps: Process(deps, memory, "nodelifecycle"))
    await clock.sleep(30)
    await add_node(world, "a")
    await clock.sleep(30)
    assert await pods(world) == len(NAMES), "not all have had their minute"
    await add_node(world, "b")
    await clock.sleep(60)
    assert await pods(world) == len(NAMES)
    assert memory.active == []


async def test_a_new_cluster_begins_without_nodes_and_raises_no_alert(
    world: World, clock: Clock
) -> None:
    memory = MemorySink()
    for name in NAMES:
        document = pod_of(ObjectMeta(name=name))
        del document["metadata"]["ownerReferences"]
        await world.client.create(POD, document)
    world.add("a", lambda deps: Process(deps, memory, "nodelifecycle", "garbagecollector"))
    await clock.sleep(30)
    assert memory.history == []
    await add_node(world, "a")
    await clock.sleep(30)
    await world.client.delete(NODE, "a")
    await clock.sleep(30)
    assert memory.history == [], "one that goes while we look on is no surprise"
