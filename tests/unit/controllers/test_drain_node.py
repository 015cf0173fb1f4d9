"""``drain_node`` and ``remove_pod``: owner references, not labels, decide which pods are meant."""

from collections.abc import AsyncGenerator

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api.http import Request
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, NAME_LABEL
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import Document
from grange.api.replication import REMOVE_ANNOTATION, pods_to_remove
from grange.api.status import Conflict
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.replica_operations import ReplicationControllers, pods_of
from grange.controllers.replication.controller import ReplicationService


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    """Two pods of ``web``, on nodes a and b."""
    async with world(clock, rng, log) as made:
        for name in ("a", "b"):
            await made.add_node(name)
        await made.add_controller(replicas=2)
        made.start(ReplicationService(made.deps))
        await made.until(lambda: made.ready(2))
        yield made


@pytest.fixture
def ops(there: World) -> ReplicationControllers:
    return ReplicationControllers(there.client, "default")


async def impostor(there: World, name: str, *, owner: str) -> None:
    """A pod on node a with both labels of ``web``, and another owner or (empty) none."""
    controller = await there.controller()
    meta: Document = {
        "name": name,
        "labels": {NAME_LABEL: "web", ID_LABEL: controller.metadata.uid},
    }
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    spec = {**builders.TEMPLATE["spec"], "nodeName": "a"}
    await there.client.create(POD, {"metadata": meta, "spec": spec}, "default")


async def pod_on(there: World, name: str) -> Pod:
    return await there.client.get(POD, name, "default")


@pytest.mark.parametrize("owner", ["another", ""], ids=["a stranger", "an orphan"])
async def test_shrinking_counts_and_removes_no_pod_of_others(
    there: World, ops: ReplicationControllers, owner: str
) -> None:
    """An orphan is adopted as soon as it is seen; before that it has no owner."""
    if not owner:
        there.held_watches.add("/api/v1/pods")  # not adopted before the order
    await impostor(there, "like-web", owner=owner)
    mine = await pod_on(there, "web-a")
    done = await ops.drain_node("web", "a", shrink=True)
    assert done.spec.replicas == 1
    assert pods_to_remove(done) == {mine.metadata.uid}
    there.held_watches.clear()

    async def left() -> bool:
        return "web-a" not in await there.names()

    await there.until(left)
    await there.settle(10)
    kept = await there.names()
    if owner:
        assert kept == ["like-web", "web-b"]
    else:
        assert len(kept) == 1, "adopted as one too many; the count is the one that was asked for"


async def test_shrinking_takes_a_pod_that_has_lost_its_labels(
    there: World, ops: ReplicationControllers
) -> None:
    there.held_watches.add("/api/v1/pods")  # or they would be put back
    bare = {"metadata": {"labels": {ID_LABEL: None}}}
    mine = await there.client.patch(POD, "web-a", "default", patch=bare)
    done = await ops.drain_node("web", "a", shrink=True)
    assert done.spec.replicas == 1
    assert pods_to_remove(done) == {mine.metadata.uid}
    again = await ops.remove_pod("web", "web-b")
    assert mine.metadata.uid in pods_to_remove(again), "the first order is not forgotten"


async def test_drain_counts_the_pods_of_the_controller(
    there: World,
) -> None:
    await impostor(there, "like-web", owner="another")
    controller = await there.controller()
    found = await pods_of(there.client, controller, "a")
    assert [pod.metadata.name for pod in found] == ["web-a"]
    assert [p.metadata.name for p in await pods_of(there.client, controller, "b")] == ["web-b"]


async def test_nothing_asks_for_all_pods_of_the_namespace(there: World) -> None:
    """There may be very many of others; what was ordered before is asked for by name."""
    asked: list[Request] = []

    def note(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/namespaces/default/pods"):
            asked.append(request)

    there.gate = note
    ops = ReplicationControllers(there.deps.client, "default")
    await ops.remove_pod("web", "web-a")
    await there.until(lambda: there.ready(1))
    await ops.drain_node("web", "b", shrink=True)
    await there.until(lambda: there.ready(0))
    assert [r for r in asked if "fieldSelector" in r.query] != []
    assert [r for r in asked if not {"fieldSelector", "labelSelector"} & set(r.query)] == []


async def test_undraining_outlasts_writes_of_the_status(there: World) -> None:
    """A transfer that is under way changes the controller at each of its steps."""
    lost: list[Request] = []

    def gate(request: Request) -> None:
        if request.method == "PATCH" and len(lost) < 12:
            lost.append(request)
            raise Conflict("the object has been modified")

    ops = ReplicationControllers(there.deps.client, "default")
    await ops.drain_node("web", "b")
    there.gate = gate
    done = await ops.undrain_node("web", "b")
    assert drained_nodes(done) == frozenset()
    assert len(lost) == 12


async def test_done_order_is_forgotten_and_order_without_pod_is_kept(
    there: World, ops: ReplicationControllers
) -> None:
    """A user may leave the name out; whether that pod is there cannot be asked."""
    mine = await pod_on(there, "web-a")
    there.held_watches.add("/api/v1/pods")
    order = {"metadata": {"annotations": {REMOVE_ANNOTATION: "web-a/earlier,nameless"}}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=order)
    assert pods_to_remove(await there.controller()) == {"earlier", "nameless"}
    assert pods_to_remove(await ops.remove_pod("web", "web-a")) == {"nameless", mine.metadata.uid}


async def settled_on(there: World, *names: str) -> bool:
    found = await there.controller("many")
    nodes = sorted(pod.spec.node_name for pod in await pods_named(there, "many"))
    return nodes == sorted(names) and not found.status.node_transfers


async def pods_named(there: World, name: str) -> list[Pod]:
    return [pod for pod in await there.pods() if pod.metadata.name.startswith(f"{name}-")]


async def test_packed_pods_leave_a_node_and_are_not_sent_back_to_it(
    there: World, ops: ReplicationControllers
) -> None:
    """It gets emptier with each pod that goes: to a scheduler it looks ever better."""
    await there.add_controller("many", replicas=4, placement="Packed")
    await there.until(lambda: settled_on(there, "a", "a", "b", "b"))
    await ops.drain_node("many", "a")
    await there.until(lambda: settled_on(there, "b", "b", "b", "b"))
    await there.change("many", replicas=6)
    await there.until(lambda: settled_on(there, *"bbbbbb"))
    await ops.undrain_node("many", "a")
    await there.change("many", replicas=8)
    await there.until(lambda: settled_on(there, *"aabbbbbb"))


async def test_unbound_packed_pods_follow_a_later_drain(
    there: World, ops: ReplicationControllers
) -> None:
    await there.add_node("c", labels={"disk": "ssd"})
    await ops.create(
        "many",
        {
            "template": builders.TEMPLATE,
            "placement": "Packed",
            "nodeSelector": {"matchLabels": {"disk": "ssd"}},
        },
    )
    await ops.drain_node("many", "c")
    await ops.set_replicas("many", 1)
    await there.settle(5.0)
    assert await settled_on(there, ""), "there is no other node"
    await ops.undrain_node("many", "c")
    await there.until(lambda: settled_on(there, "c"))


@pytest.mark.parametrize("shrink", [False, True], ids=["remove-pod", "drain-node --shrink"])
async def test_pod_ordered_to_go_waits_for_the_minimum(
    there: World, ops: ReplicationControllers, *, shrink: bool
) -> None:
    """One account for everything that takes pods on purpose: an order is such a purpose."""
    await there.add_node("c")
    await there.change(replicas=3, rollout={"maxUnavailable": 0})
    await there.until(lambda: there.ready(3))
    await there.set_phase(await pod_on(there, "web-b"), "Pending")  # not ready, for example
    there.unready.add("b")
    if shrink:
        await ops.drain_node("web", "a", shrink=True)
    else:
        await ops.remove_pod("web", "web-a")
    await there.settle(20.0)
    assert await there.names() == ["web-a", "web-b", "web-c"]
    stated = await there.condition("Reconciled")
    assert (stated.reason, stated.message) == (
        "DisruptionBudget",
        "1 pod stays for now: 2 must be available",
    )
    counted = {"reason": "DisruptionBudget"}
    assert there.deps.metrics.get_sample_value("grange_replication_skips_total", counted) == 1.0
    there.unready.discard("b")
    await there.until(lambda: there.ready(2))
    assert await there.names() == ["web-b", "web-c"]
