"""The replication controller against a real API server in memory, under virtual time.

Numbers R… and W… are those of the checks in the specification of replication.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api import codec
from grange.api.http import Request
from grange.api.kinds import NAMESPACE, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.meta import Document, controller_of
from grange.api.status import ApiError, InternalError, Invalid
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import pod_control
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.plan import Plan, Removal
from grange.controllers.shared import pod_identity
from grange.reconcile.expectations import Expectations


async def started(there: World, *nodes: str, replicas: int, **spec: Any) -> ReplicationService:
    """A controller ``web`` on nodes, and the service that keeps it."""
    for name in nodes:
        await there.add_node(name)
    await there.add_controller(replicas=replicas, **spec)
    service = ReplicationService(there.deps)
    there.start(service)
    return service


def refuse(method: str, part: str, error: ApiError) -> Callable[[Request], ApiError | None]:
    """A gate that refuses requests of a method whose path has a part."""

    def gate(request: Request) -> ApiError | None:
        return error if request.method == method and part in request.path else None

    return gate


async def test_pods_are_created_on_nodes_in_order_and_become_ready(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """R3, R14, R16 through the API."""
    async with world(clock, rng, log) as there:
        await started(there, "d", "b", "a", "c", replicas=3)
        await there.until(lambda: there.ready(3))
        assert await there.names() == ["web-a", "web-b", "web-c"]
        assert [p.spec.node_name for p in await there.pods()] == ["a", "b", "c"]
        await there.settle()
        assert (await there.condition("Available")).status == "True"
        assert (await there.condition("Reconciled")).status == "True"
        assert (await there.condition("InsufficientNodes")).status == "False"
        status = (await there.controller()).status
        assert (status.replicas, status.ready_replicas, status.updated_replicas) == (3, 3, 3)
        assert status.observed_generation == 1
        scale = await there.client.get_document(
            REPLICATIONCONTROLLER, "web", "default", subresource="scale"
        )
        assert status.selector == scale["status"]["selector"], "as servers show it that look it up"


async def test_a_controller_that_is_complete_writes_nothing_more(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """R11: what is as wanted is not written again; resyncs and echoes cost no write."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.settle()
        there.requests.clear()
        await there.settle(400.0)
        assert there.requests == []


async def test_packed_pods_run_on_the_selected_nodes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_node("big", labels={"disk": "ssd"})
        await started(
            there,
            "small",
            replicas=4,
            placement="Packed",
            nodeSelector={"matchLabels": {"disk": "ssd"}},
        )
        await there.until(lambda: there.ready(4))
        assert await there.names() == ["web-0", "web-1", "web-2", "web-3"]
        assert {p.spec.node_name for p in await there.pods()} == {"big"}


async def test_r1_controller_at_zero_without_nodes_creates_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, replicas=0)
        await there.settle()
        assert await there.pods() == []
        assert (await there.condition("Reconciled")).status == "True"
        assert await there.events("InsufficientNodes") == []


async def test_r2_no_eligible_node_is_reported_at_once_and_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """P2's alert within a second is a condition and one event here; it is no error loop."""
    async with world(clock, rng, log) as there:
        service = await started(there, replicas=1)
        await there.settle(1.0)
        assert await there.pods() == []
        condition = await there.condition("InsufficientNodes")
        assert condition.status == "True"
        assert condition.message == "1 of 1 replica has no eligible node: there is no node"
        await there.settle(200.0)
        assert [event.count for event in await there.events("InsufficientNodes")] == [1]
        assert service.loop.statistics().failed == 0


async def test_r4_short_controller_places_more_when_a_node_comes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """W3: a node that appears wakes the controller; in P2 it waited for about five minutes."""
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=2)
        await there.until(lambda: there.ready(1))
        assert (await there.condition("InsufficientNodes")).status == "True"
        await there.add_node("b")
        assert await there.until(lambda: there.ready(2)) < 2.0
        await there.settle()
        assert (await there.condition("InsufficientNodes")).status == "False"


async def test_r5_negative_replicas_are_refused_by_the_api(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1)
        await there.until(lambda: there.ready(1))
        with pytest.raises(Invalid, match=r"spec\.replicas"):
            await there.change(replicas=-1)
        await there.settle()
        assert await there.names() == ["web-a"]


async def test_r6_r7_growth_keeps_pods_and_zero_removes_them(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await there.until(lambda: there.ready(1))
        first = (await there.pods())[0].metadata.uid
        await there.change(replicas=2)
        await there.until(lambda: there.ready(2))
        assert (await there.pods())[0].metadata.uid == first
        await there.change(replicas=0)
        await there.until(lambda: there.ready(0))
        await there.settle()
        assert await there.pods() == []
        assert await there.events("InsufficientNodes") == []


async def test_r8_w3_w9_shrinking_takes_the_pod_on_the_ineligible_node(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        nodes = [f"n{index:02}" for index in range(20)]
        selector = {"matchExpressions": [{"key": "out", "operator": "DoesNotExist"}]}
        await started(there, *nodes, replicas=20, nodeSelector=selector)
        await there.until(lambda: there.ready(20))
        await there.client.patch(NODE, "n07", patch={"metadata": {"labels": {"out": "yes"}}})
        await there.change(replicas=19)
        await there.until(lambda: there.ready(19))
        await there.settle()
        assert [p.spec.node_name for p in await there.pods()] == [n for n in nodes if n != "n07"]


async def test_r9_r10_scaling_to_seven_and_back_crosses_batches(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        service = await started(there, *"abcdefg", replicas=7)
        await there.until(lambda: there.ready(7))
        await there.change(replicas=0)
        await there.until(lambda: there.ready(0))
        assert service.loop.statistics().failed == 0


async def test_r15_static_pods_stay_on_a_node_that_became_ineligible(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_node("a", labels={"use": "yes"})
        await started(there, replicas=1, nodeSelector={"matchLabels": {"use": "yes"}})
        await there.until(lambda: there.ready(1))
        await there.add_node("b", labels={"use": "yes"})
        await there.client.patch(NODE, "a", patch={"metadata": {"labels": {"use": None}}})
        await there.settle(60.0)
        assert [p.spec.node_name for p in await there.pods()] == ["a"]


async def test_r17_r19_paused_controllers_stay_until_resumed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, *"abcde", replicas=5, paused=True)
        await there.settle(10.0)
        assert await there.pods() == []
        assert (await there.condition("Paused")).status == "True"
        await there.change(paused=False)
        await there.until(lambda: there.ready(5))
        await there.change(paused=True, replicas=3)
        await there.settle(10.0)
        assert len(await there.names()) == 5
        await there.change(paused=False)
        await there.until(lambda: there.ready(3))


async def test_a_deleted_pod_is_replaced_on_its_node(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """R13."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        old = (await there.pods())[0]
        await there.client.delete(POD, "web-a", "default")

        async def replaced() -> bool:
            new = {p.metadata.name: p.metadata.uid for p in await there.pods()}
            return new.get("web-a") not in {None, old.metadata.uid} and await there.ready(2)

        assert await there.until(replaced) < 2.0


async def test_failing_pod_is_replaced_with_growing_delays(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1)
        await there.until(lambda: there.ready(1))
        seen: set[str] = set()
        ends = clock.monotonic() + 60.0
        while clock.monotonic() < ends:
            for pod in await there.pods():
                if pod.status.phase == "Running":
                    seen.add(pod.metadata.uid)
                    await there.set_phase(pod, "Failed")
            await clock.sleep(0.05)
        assert 5 <= len(seen) <= 8
        stated = await there.condition("Reconciled")
        assert (stated.status, stated.reason) == ("False", "CrashLoopBackOff")
        assert await there.until(lambda: there.ready(1), limit_s=120.0) <= 61.0


async def test_w2_failed_write_is_retried_and_shown_in_the_status(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """In P2 a failed pass waited for an unrelated change, or about five minutes."""
    async with world(clock, rng, log) as there:
        there.gate = refuse("POST", "/pods", InternalError("the disk is full"))
        service = await started(there, *"abcd", replicas=4)
        await there.settle(5.0)
        stated = await there.condition("Reconciled")
        assert (stated.reason, stated.message) == ("WriteFailed", "the disk is full")
        tries = sum(path.endswith("/pods") for _, path in there.requests)
        failed = service.loop.statistics().failed
        assert tries == failed  # slow start: one request a pass, not four
        there.gate = lambda request: None
        assert await there.until(lambda: there.ready(4)) < 10.0
        await there.settle()
        assert (await there.condition("Reconciled")).status == "True"
        created_failures = await there.events("FailedCreate")
        assert [event.count for event in created_failures] == [failed]


async def test_one_controller_that_fails_does_not_hold_up_another(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_controller("bad", replicas=1, podLabels={"x": "y"})
        service = await started(there, "a", "b", replicas=2)

        def gate(request: Request) -> ApiError | None:
            if request.method == "POST" and b"bad-a" in (request.body or b""):
                return InternalError("no")
            return None

        there.gate = gate
        await there.until(lambda: there.ready(2))
        assert service.loop.queue.failures((await there.controller("bad")).key) > 0


async def test_w8_a_pod_taken_over_meanwhile_is_not_deleted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The cache still shows that the pod is ours; the server shows that it has another owner."""
    async with world(clock, rng, log) as there:
        service = await started(there, "a", replicas=1)
        await there.until(lambda: there.ready(1))
        owner = await there.controller()
        ours = (await there.pods())[0]
        other = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": True}
        await there.client.patch(
            POD, "web-a", "default", patch={"metadata": {"ownerReferences": [other]}}
        )
        deleting = pod_control.PodControl(
            there.client, Expectations(clock), service._recorder, clock=clock
        )
        plan = Plan(delete=(Removal(ours, "Surplus"),))
        assert await deleting.carry_out(owner, plan) is None
        assert "web-a" in await there.names()


async def orphaned(there: World) -> None:
    """Delete the controller, but not its pods."""
    await there.change(paused=True)
    await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
    await there.settle()
    for pod in await there.pods():  # as the garbage collector does
        await there.client.patch(
            POD, pod.metadata.name, "default", patch={"metadata": {"ownerReferences": None}}
        )


async def test_orphans_are_adopted_not_doubled(clock: Clock, rng: Stream, log: Logger) -> None:
    """A controller deleted with its pods orphaned, and created again, takes them over."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        before = [p.metadata.uid for p in await there.pods()]
        await orphaned(there)
        await there.add_controller(replicas=2)
        await there.until(lambda: there.ready(2))
        await there.settle()
        pods = await there.pods()
        assert [p.metadata.uid for p in pods] == before
        owner = await there.controller()
        for pod in pods:
            reference = controller_of(pod.metadata)
            assert reference is not None
            assert reference.uid == owner.metadata.uid
            assert pod.metadata.labels[pod_identity.RC_ID_LABEL] == owner.metadata.uid
        assert len(await there.events("Adopted")) == 2
        assert await there.events("LabelsRepaired") == []  # ours and marked as ours in one write


@pytest.mark.parametrize("replicas", [0, 1])
async def test_adopted_pods_that_are_too_many_go(
    clock: Clock, rng: Stream, log: Logger, replicas: int
) -> None:
    """They bear the mark of a controller that is not there any more."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=3)
        await there.until(lambda: there.ready(3))
        await orphaned(there)
        await there.add_controller(replicas=replicas)
        await there.settle(10.0)
        assert len(await there.pods()) == replicas
        assert await there.ready(replicas)
        assert (await there.condition("Reconciled")).status == "True"


async def test_pods_marked_as_anothers_go_when_they_are_too_many(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The owner reference decides; a uid label that a hand changed hides no pod from the audit."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=3)
        await there.until(lambda: there.ready(3))
        await there.change(paused=True)
        mark = {"metadata": {"labels": {pod_identity.RC_ID_LABEL: "another"}}}
        for name in ("web-a", "web-b"):
            await there.client.patch(POD, name, "default", patch=mark)
        await there.client.delete(POD, "web-c", "default")  # members are asked for
        await there.settle(5.0)
        await there.change(paused=False, replicas=0)
        await there.settle(10.0)
        assert await there.pods() == []
        assert (await there.condition("Reconciled")).status == "True"


async def test_labels_that_are_ours_to_set_are_not_taken_from_the_spec(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """With another word for the template, put back, each pod would be outdated as soon as it is made."""
    marks = (pod_identity.RC_NAME_LABEL, pod_identity.RC_ID_LABEL, pod_identity.TEMPLATE_HASH_LABEL)
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.add_controller(replicas=1, podLabels=dict.fromkeys(marks, "mine"))
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        (pod,) = await there.pods()
        await there.settle(60.0)
        assert [(p.metadata.uid, p.metadata.labels) for p in await there.pods()] == [
            (pod.metadata.uid, pod.metadata.labels)
        ]
        assert "mine" not in pod.metadata.labels.values()


async def test_w12_labels_that_drift_are_put_back(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1, podLabels={"tier": "front"})
        await there.until(lambda: there.ready(1))
        uid = (await there.pods())[0].metadata.uid
        drift = {"tier": "back", pod_identity.RC_NAME_LABEL: None, pod_identity.RC_ID_LABEL: None}
        await there.client.patch(POD, "web-a", "default", patch={"metadata": {"labels": drift}})
        await there.settle()
        pod = (await there.pods())[0]
        assert pod.metadata.uid == uid
        assert pod.metadata.labels["tier"] == "front"
        assert pod.metadata.labels[pod_identity.RC_NAME_LABEL] == "web"


async def test_another_queue_in_the_labels_holds_for_new_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A pod that has a node keeps the queue that it counts in; what else is to be done goes on."""
    async with world(clock, rng, log) as there:
        service = await started(there, "a", "b", replicas=2, podLabels={QUEUE_LABEL: "one"})
        await there.until(lambda: there.ready(2))
        await there.change(podLabels={QUEUE_LABEL: "two", "tier": "front"})
        await there.settle(10.0)
        found = [
            (p.metadata.labels[QUEUE_LABEL], p.metadata.labels["tier"]) for p in await there.pods()
        ]
        assert found == [("one", "front"), ("one", "front")]
        assert service.loop.statistics().failed == 0
        assert await there.events("FailedRepair") == []
        await there.client.delete(POD, "web-a", "default")
        await there.settle(5.0)
        assert [p.metadata.labels[QUEUE_LABEL] for p in await there.pods()] == ["two", "one"]


async def test_recreated_controller_with_new_queue_adopts_and_replaces(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2, podLabels={QUEUE_LABEL: "one"})
        await there.until(lambda: there.ready(2))
        await orphaned(there)
        await there.add_controller(replicas=2, podLabels={QUEUE_LABEL: "two"})
        await there.until(lambda: there.ready(2))
        await there.client.delete(POD, "web-b", "default")
        await there.settle(5.0)
        uid = (await there.controller()).metadata.uid
        owners = [controller_of(pod.metadata) for pod in await there.pods()]
        assert [owner.uid for owner in owners if owner is not None] == [uid, uid]
        assert [p.metadata.labels[QUEUE_LABEL] for p in await there.pods()] == ["one", "two"]


async def test_a_relabelled_pod_is_let_go_and_replaced(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """How to take a pod out of service for a closer look."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await there.until(lambda: there.ready(1))
        mark = {"metadata": {"labels": {pod_identity.RC_NAME_LABEL: "quarantine"}}}
        await there.client.patch(POD, "web-a", "default", patch=mark)

        async def released() -> bool:
            pods = {p.metadata.name: p for p in await there.pods()}
            return not pods["web-a"].metadata.owner_references and len(pods) == 2

        await there.until(released)
        await there.until(lambda: there.ready(1))


async def test_a_changed_template_keeps_running_pods_and_counts_them(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """OnDelete: pods are renewed as they are deleted."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2, rollout={"type": "OnDelete"})
        await there.until(lambda: there.ready(2))
        before = [p.metadata.uid for p in await there.pods()]
        template = {**builders.TEMPLATE, "metadata": {"labels": {"app": "web", "v": "2"}}}
        await there.change(template=template)
        await there.settle(10.0)
        assert [p.metadata.uid for p in await there.pods()] == before
        assert (await there.controller()).status.updated_replicas == 0
        assert (await there.condition("Reconciled")).reason == "Outdated"
        await there.client.delete(POD, "web-a", "default")
        await there.settle(2.0)
        status = (await there.controller()).status
        assert status.updated_replicas == 1
        assert status.rollout is not None
        assert status.rollout.phase == "Waiting"


async def test_w14_pods_of_a_node_not_ready_do_not_count_as_ready(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.set_ready("a", "Unknown")
        await there.settle()
        assert (await there.controller()).status.ready_replicas == 1
        assert (await there.condition("Available")).status == "False"


async def test_w18_a_corrupt_controller_does_not_hide_the_others(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """In P2 one record that could not be read made every list fail. Its replicas are missing (check S2)."""
    async with world(clock, rng, log) as there:
        for when in ("before", "after"):
            corrupt = {
                "apiVersion": "grange.dev/v1alpha1",
                "kind": "ReplicationController",
                "metadata": {"name": when, "namespace": "default", "uid": when},
                "spec": {"template": builders.TEMPLATE},
            }

            def stored(revision: int, document: Document = corrupt) -> bytes:
                meta = {**document["metadata"], "resourceVersion": str(revision)}
                return codec.encode({**document, "metadata": meta})

            await there.store.put(f"/grange.dev/replicationcontrollers/default/{when}", stored)
            if when == "before":
                await started(there, "a", "b", replicas=1)
                await there.until(lambda: there.ready(1))
        await there.change(replicas=2)
        await there.until(lambda: there.ready(2))
        assert await there.names() == ["web-a", "web-b"]


async def test_names_that_two_controllers_would_share_do_not_collide(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """``web`` on node ``a-b`` and ``web-a`` on node ``b`` both want a pod ``web-a-b``."""
    async with world(clock, rng, log) as there:
        await there.add_controller("web-a", replicas=2)
        await started(there, "a-b", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.until(lambda: there.ready(2, "web-a"))
        assert len(await there.pods()) == 4


async def test_nothing_is_done_before_every_cache_is_complete(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """An empty view of nodes or pods would look like a reason to move or to create everything."""
    async with world(clock, rng, log) as there:
        there.gate = refuse("GET", "/api/v1/pods", InternalError("not now"))
        await started(there, "a", "b", replicas=2)
        await there.settle(20.0)
        assert [path for method, path in there.requests if method != "GET"] == []
        there.gate = lambda request: None
        await there.until(lambda: there.ready(2))


async def test_a_cache_that_lags_never_doubles_pods(clock: Clock, rng: Stream, log: Logger) -> None:
    """Expectations: what this controller created counts before the watch has shown it."""
    async with world(clock, rng, log) as there:
        service = await started(there, replicas=3, placement="Packed")
        there.held_watches.add("/api/v1/pods")
        key = (await there.controller()).key
        for _ in range(20):
            service.loop.enqueue(key)
            await there.settle(1.0)
        assert len(await there.pods()) == 3
        assert service.loop.statistics().failed == 0
        there.held_watches.clear()
        await there.add_node("a")
        await there.until(lambda: there.ready(3))


async def test_a_cache_that_lags_never_removes_too_much(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        service = await started(there, "a", replicas=5, placement="Packed")
        await there.until(lambda: there.ready(5))
        there.held_watches.add("/api/v1/pods")
        await there.change(replicas=3)
        key = (await there.controller()).key
        for _ in range(20):
            service.loop.enqueue(key)
            await there.settle(1.0)
        assert len(await there.names()) == 3


async def test_a_terminating_namespace_is_left_in_peace(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The refusal to create in it is expected: no event, no condition, no error."""
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.client.create(NAMESPACE, {"metadata": {"name": "going"}})
        document = {
            "metadata": {"name": "web", "namespace": "going"},
            "spec": {"replicas": 1, "template": builders.TEMPLATE},
        }
        await there.client.create(REPLICATIONCONTROLLER, document, "going")
        await there.client.delete(NAMESPACE, "going")
        service = ReplicationService(there.deps)
        there.start(service)
        await there.settle(5.0)
        assert service.loop.statistics().failed == 0
        assert await there.events("FailedCreate") == []


async def test_r12_divergent_pod_is_recreated_within_the_budget(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """P2 wrote the intent again; a pod here keeps what it was made from, so it is replaced."""
    async with world(clock, rng, log) as there:
        for name in ("a", "b", "c"):
            await there.add_node(name)
        await there.add_controller(replicas=2)
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(2))
        await there.settle(5.0)
        before = {pod.metadata.name: pod.metadata.uid for pod in await there.pods()}
        strange = {"metadata": {"labels": {"grange.dev/template-hash": "0123456789"}}}
        await there.client.patch(POD, "web-a", "default", patch=strange)
        lowest = 2

        async def replaced() -> bool:
            nonlocal lowest
            status = (await there.controller()).status
            lowest = min(lowest, status.ready_replicas)
            return before["web-a"] not in {pod.metadata.uid for pod in await there.pods()}

        await there.until(replaced)
        await there.until(lambda: there.ready(2))
        assert lowest == 2
        assert before["web-b"] in {pod.metadata.uid for pod in await there.pods()}
        assert (await there.controller()).status.updated_replicas == 2


async def test_readiness_of_a_pod_that_is_gone_is_forgotten(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        service = ReplicationService(there.deps)
        there.start(service)
        await there.add_controller(replicas=1)
        await there.until(lambda: there.ready(1))
        (pod,) = await there.pods()
        await there.settle(20.0)
        readiness = service._reconciler._state.readiness
        assert readiness.wait_s(pod, 10.0, 0.0) == 0.0
        # It is never seen on its way out.
        await there.client.delete(POD, pod.metadata.name, "default", grace_period_s=0)
        await there.settle(5.0)
        assert readiness.wait_s(pod, 10.0, 0.0) == 10.0
