"""Silent nodes, evictions and pod collection against a real API server in memory."""

from typing import Any

from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api import timestamps
from grange.api.http import Request
from grange.api.kinds import NODE, POD
from grange.api.kinds.pod import DISRUPTION_TARGET, condition
from grange.api.status import Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.nodelifecycle.config import NodeLifecycleConfig
from grange.controllers.nodelifecycle.controller import NodeLifecycle
from grange.controllers.replication.controller import ReplicationService
from grange.sim import builders as objects


def staying(seconds: int) -> list[dict[str, object]]:
    """Tolerations for any taint, for so long."""
    return [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]


async def started(there: World, *nodes: str, **settings: Any) -> NodeLifecycle:
    for name in nodes:
        await there.add_node(name)
    service = NodeLifecycle(there.deps, NodeLifecycleConfig(**settings))
    there.start(service)
    return service


async def bound(there: World, name: str, node: str, **spec: Any) -> None:
    await there.client.create(POD, objects.pod_document(name, nodeName=node, **spec), "default")


async def taints(there: World, node: str) -> list[str]:
    found = (await there.client.get(NODE, node)).spec.taints
    return [f"{t.key.removeprefix('node.kubernetes.io/')}:{t.effect}" for t in found]


async def status(there: World, node: str) -> str:
    found = (await there.client.get(NODE, node)).status.conditions
    return next(item.status for item in found if item.type == "Ready")


async def test_silent_node_is_tainted_and_cleared_when_it_returns(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b")
        await there.settle(35.0)
        there.silent.add("a")
        await there.settle(35.0)
        assert await status(there, "a") == "True"
        assert await taints(there, "a") == []
        await there.settle(25.0)
        assert await status(there, "a") == "Unknown"
        assert await taints(there, "a") == ["unreachable:NoSchedule", "unreachable:NoExecute"]
        assert await taints(there, "b") == []
        assert len(await there.events("NodeNotReady")) == 1
        there.silent.clear()
        await there.beat("a")
        await there.set_ready("a", "True")
        await there.settle(1.0)
        assert await taints(there, "a") == []


async def test_a_node_is_not_silent_because_its_lease_is_not_watched(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The server is asked before a node is marked: a watch that hangs shows no heartbeats."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b")
        await there.settle(25.0)
        there.held_watches.add("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        there.silent.add("a")
        await there.settle(100.0)
        assert await status(there, "a") == "Unknown"
        assert await status(there, "b") == "True"
        assert await taints(there, "b") == []


async def test_a_node_that_reports_not_ready_is_tainted_accordingly(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b")
        await there.set_ready("a", "False")
        await there.settle(10.0)
        assert await taints(there, "a") == ["not-ready:NoSchedule", "not-ready:NoExecute"]


async def test_healthy_nodes_cost_no_writes(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b")
        await there.settle(100.0)
        assert there.requests == []


async def test_pods_leave_a_silent_node_when_their_toleration_is_over(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b")
        await bound(there, "plain", "a")  # the API server lets it stay for 300 s
        await bound(there, "patient", "a", tolerations=[{"operator": "Exists"}])
        await bound(there, "hasty", "a", tolerations=staying(10))
        await bound(there, "elsewhere", "b")
        await there.settle(5.0)
        there.silent.add("a")

        async def tainted() -> bool:
            return "unreachable:NoExecute" in await taints(there, "a")

        assert 35.0 < await there.until(tainted) < 60.0
        await there.settle(9.0)
        assert await there.names() == ["elsewhere", "hasty", "patient", "plain"]
        await there.settle(2.0)
        assert await there.names() == ["elsewhere", "patient", "plain"]
        await there.settle(285.0)
        assert await there.names() == ["elsewhere", "patient", "plain"]
        await there.settle(10.0)
        assert await there.names() == ["elsewhere", "patient"]
        assert len(await there.events("TaintManagerEviction")) == 2


async def test_pods_stay_when_the_node_returns_in_time(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b")
        await bound(there, "plain", "a", tolerations=staying(60))
        await there.settle(5.0)
        there.silent.add("a")
        await there.settle(80.0)
        assert await status(there, "a") == "Unknown"
        there.silent.clear()
        await there.beat("a")
        await there.set_ready("a", "True")
        await there.settle(120.0)
        assert await there.names() == ["plain"]


async def test_nothing_is_evicted_when_every_node_looks_dead(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """More likely we are cut off than all of them are."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", evictions_per_s=100.0, burst=100)
        for node in "ab":
            await bound(there, f"on-{node}", node, tolerations=staying(10))
        await there.settle(5.0)
        there.silent.update("ab")
        await there.settle(200.0)
        assert await there.names() == ["on-a", "on-b"]
        assert await taints(there, "a") == ["unreachable:NoSchedule"]
        there.silent.remove("b")
        await there.beat("b")
        await there.set_ready("b", "True")
        await there.settle(60.0)
        assert await there.names() == ["on-b"]


async def test_silent_nodes_are_tainted_one_after_the_other(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, *"abcdef", evictions_per_s=0.1)
        await there.settle(5.0)
        there.silent.update("abc")
        await there.settle(47.0)
        executed = [node for node in "abc" if "unreachable:NoExecute" in await taints(there, node)]
        assert len(executed) == 1
        await there.settle(25.0)
        executed = [node for node in "abc" if "unreachable:NoExecute" in await taints(there, node)]
        assert len(executed) == 3


async def test_taints_of_an_operator_evict_at_once(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "plain", "a")
        await bound(there, "db", "a", tolerations=[{"key": "dedicated", "operator": "Exists"}])
        await there.settle(1.0)
        taint = {"key": "dedicated", "value": "db", "effect": "NoExecute"}
        await there.client.patch(NODE, "a", patch={"spec": {"taints": [taint]}})
        await there.settle(1.0)
        assert await there.names() == ["db"]
        await bound(there, "late", "a")
        await there.settle(1.0)
        assert await there.names() == ["db"]


async def test_late_eviction_of_a_recovered_pod_is_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "plain", "a")
        await there.settle(1.0)
        held: list[Request] = []

        def gate(request: Request) -> Timeout | None:
            if request.method != "DELETE" or "/pods/" not in request.path:
                return None
            held.append(request)
            return Timeout("no answer came")

        there.gate = gate
        taint = {"key": "dedicated", "value": "db", "effect": "NoExecute"}
        await there.client.patch(NODE, "a", patch={"spec": {"taints": [taint]}})
        await there.settle(1.0)
        await there.client.patch(NODE, "a", patch={"spec": {"taints": None}})
        await there.set_phase((await there.pods())[0], "Pending")
        await there.settle(5.0)
        assert held
        codes = {(await there.application.handle(request)).status for request in held}
        assert codes == {409}
        assert await there.names() == ["plain"]


TAINT = {"key": "dedicated", "value": "db", "effect": "NoExecute"}


class Held:
    """Holds requests on pods until they are delivered; who sent them gets no answer."""

    def __init__(self, there: World, method: str) -> None:
        self._there, self._method = there, method
        self.requests: list[Request] = []
        there.gate = self._gate

    def _gate(self, request: Request) -> Timeout | None:
        if request.method != self._method or "/pods/" not in request.path:
            return None
        self.requests.append(request)
        return Timeout("no answer came")

    async def deliver(self) -> set[int]:
        """Deliver everything now and hold nothing more; the codes of the answers."""
        self._there.gate = lambda request: None
        assert self.requests
        handle = self._there.application.handle
        return {(await handle(request)).status for request in self.requests}


async def taint(there: World, node: str, *taints: dict[str, str]) -> None:
    await there.client.patch(NODE, node, patch={"spec": {"taints": list(taints)}})


async def mark(there: World, name: str) -> tuple[str, str]:
    """Status and reason of the condition DisruptionTarget."""
    found = condition(await there.client.get(POD, name, "default"), DISRUPTION_TARGET)
    return ("", "") if found is None else (found.status, found.reason)


async def test_late_eviction_is_refused_when_the_taint_is_gone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nothing else is written on the pod: taking off the mark is what refuses the deletion."""
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "plain", "a")
        await there.settle(1.0)
        held = Held(there, "DELETE")
        await taint(there, "a", TAINT)
        await there.settle(1.0)
        assert await mark(there, "plain") == ("True", "DeletionByTaintManager")
        await taint(there, "a")
        await there.settle(2.0)
        assert await mark(there, "plain") == ("False", "EvictionCancelled")
        assert await held.deliver() == {409}
        assert await there.names() == ["plain"]


async def test_late_eviction_of_a_former_controller_is_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The taint goes while no controller runs; the successor finds the mark of the one before."""
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await bound(there, "plain", "a")
        held = Held(there, "DELETE")
        async with Nursery("first") as first:
            first.start(NodeLifecycle(there.deps).run())
            await there.settle(1.0)
            await taint(there, "a", TAINT)
            await there.settle(1.0)
            first.cancel()
        await taint(there, "a")
        await there.settle(40.0)
        await there.beat("a")
        there.start(NodeLifecycle(there.deps))
        await there.settle(2.0)
        assert await held.deliver() == {409}
        assert await there.names() == ["plain"]


async def test_eviction_under_a_new_taint_marks_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "plain", "a", tolerations=staying(20))
        await there.settle(1.0)
        held = Held(there, "DELETE")
        await taint(there, "a", TAINT)
        await there.settle(22.0)
        await taint(there, "a")
        await there.settle(2.0)
        await taint(there, "a", TAINT)
        await there.settle(2.0)
        assert await mark(there, "plain") == ("False", "EvictionCancelled")  # it may stay for 20 s
        assert await held.deliver() == {409}
        await there.settle(20.0)
        assert await there.names() == []


async def test_late_mark_is_taken_off(clock: Clock, rng: Stream, log: Logger) -> None:
    """A mark without an answer is followed by no deletion."""
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "plain", "a")
        await there.settle(1.0)
        held = Held(there, "PATCH")
        await taint(there, "a", TAINT)
        await there.settle(1.0)
        await taint(there, "a")
        await there.settle(40.0)
        assert 200 in await held.deliver()
        await there.settle(2.0)
        assert await mark(there, "plain") == ("False", "EvictionCancelled")
        assert await there.names() == ["plain"]


async def test_late_removal_is_refused_when_the_node_is_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "plain", "a")
        await there.settle(1.0)
        held = Held(there, "DELETE")
        await there.client.delete(NODE, "a")
        await there.settle(30.0)
        assert await mark(there, "plain") == ("True", "DeletionByPodGC")
        await there.add_node("a")
        await there.settle(2.0)
        assert await held.deliver() == {409}
        assert await there.names() == ["plain"]


async def test_mark_of_another_is_taken_off_when_it_is_stale(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A victim whose deletion does not follow counts again after two minutes."""
    async with world(clock, rng, log) as there:
        await started(there, "a")
        await bound(there, "victim", "a")
        await there.settle(1.0)
        marked = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": timestamps.rfc3339(clock.now()),
        }
        change = {"status": {"conditions": [marked]}}
        await there.client.patch(
            POD, "victim", "default", patch=change, type="strategic", subresource="status"
        )
        await there.settle(110.0)
        assert (await mark(there, "victim"))[0] == "True"
        await there.settle(15.0)
        assert (await mark(there, "victim"))[0] == "False"


async def test_pods_of_a_deleted_node_are_removed_and_replaced(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.start(ReplicationService(there.deps))
        await started(there, "a", "b", "c")
        await there.add_controller(replicas=2)
        await there.until(lambda: there.ready(2))
        there.silent.add("a")
        await there.client.delete(NODE, "a")
        assert await there.until(lambda: there.ready(2)) < 20.0
        assert [p.spec.node_name for p in await there.pods()] == ["b", "c"]


async def test_a_replicated_service_survives_a_dead_node(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.start(ReplicationService(there.deps))
        await started(there, "a", "b", "c")
        spec = {**builders.TEMPLATE["spec"], "tolerations": staying(30)}
        await there.add_controller(replicas=2, template={"spec": spec})
        await there.until(lambda: there.ready(2))
        there.silent.add("a")
        await there.settle(60.0)
        assert (await there.controller()).status.ready_replicas == 1
        assert await there.until(lambda: there.ready(2), limit_s=60.0) > 0
        alive = [p.spec.node_name for p in await there.pods() if not p.metadata.deletion_timestamp]
        assert alive == ["b", "c"]


async def test_finished_pods_beyond_the_bound_are_collected(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", finished_pods=2)
        for number in range(5):
            await bound(there, f"p{number}", "a")
            await there.settle(1.5)
        for pod in await there.pods():
            await there.set_phase(pod, "Succeeded")
        await there.settle(25.0)
        assert await there.names() == ["p3", "p4"]
