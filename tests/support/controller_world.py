"""A small world for tests of controllers: a real API server in memory, informers, and naive hands
in the place of scheduler and node agents.

The hands bind a pod to the node that it is pinned to (or to the matching node with the fewest
pods), report it Running and Ready, renew the node's lease, and confirm its deletion; unless the
node is in ``silent``.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from tests.unit.controllers import builders

from grange.alerts.alerts import Alerts, AlertSink
from grange.api import timestamps
from grange.api.http import User
from grange.api.kinds import EVENT, LEASE, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.event import Event
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition, Document, ObjectKey
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import condition_types
from grange.placement import node_rules
from grange.reconcile.condition_alerts import ConditionAlerts
from grange.reconcile.informer import Informer
from grange.sim.api_fixture import ApiFixture, opened

MANAGER = User("grange:admin", ("system:masters", "system:authenticated"))
LEASES = "kube-node-lease"


class World(ApiFixture):
    """Handles to everything in one test.

    Attributes:
        deps: of those under test, who share them.
        silent: nodes whose hands do nothing.
        unready: nodes whose pods do not start.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log, user=MANAGER)
        self.deps = self.new_deps()
        self.informers = self.deps.informers
        self.silent: set[str] = set()
        self.unready: set[str] = set()

    # --- objects ------------------------------------------------------------------------------

    async def add_node(
        self, name: str, *, ready: bool = True, labels: Mapping[str, str] | None = None
    ) -> None:
        """A node, its status and its lease."""
        document: Document = {"metadata": {"name": name, "labels": dict(labels or {})}}
        await self.client.create(NODE, document)
        await self.set_ready(name, "True" if ready else "False")
        await self.beat(name)

    async def set_ready(self, name: str, status: str) -> None:
        """What the agent reports about the node."""
        ready = {"type": "Ready", "status": status, "lastTransitionTime": self._now()}
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
        body = {"conditions": [ready], "capacity": amounts, "allocatable": amounts}
        await self.client.patch(NODE, name, patch={"status": body}, subresource="status")

    async def beat(self, name: str) -> None:
        """Renew the node's lease."""
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": timestamps.rfc3339_micro(self.clock.now()),
        }
        try:
            await self.client.patch(LEASE, name, LEASES, patch={"spec": spec})
        except NotFound:
            await self.client.create(LEASE, {"metadata": {"name": name}, "spec": spec}, LEASES)

    async def add_controller(self, name: str = "web", *, replicas: int = 3, **spec: Any) -> None:
        """A controller of ``builders.TEMPLATE``."""
        document: Document = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "template": builders.TEMPLATE,
                "placement": "OnePerNode",  # many tests are about which node gets a pod
                **spec,
            },
        }
        await self.client.create(REPLICATIONCONTROLLER, document, "default")

    async def change(self, name: str = "web", **spec: Any) -> None:
        """Patch a controller's spec."""
        await self.client.patch(REPLICATIONCONTROLLER, name, "default", patch={"spec": spec})

    async def controller(self, name: str = "web") -> ReplicationController:
        return await self.client.get(REPLICATIONCONTROLLER, name, "default")

    async def condition(self, kind: str, name: str = "web") -> Condition:
        """A condition of a controller."""
        for item in (await self.controller(name)).status.conditions:
            if item.type == kind:
                return item
        raise AssertionError(f"{name} has no condition {kind}")

    async def pods(self) -> list[Pod]:
        """All pods, in order of name."""
        return (await self.client.list(POD)).items

    async def names(self) -> list[str]:
        """Names of the pods that are not on their way out."""
        return [p.metadata.name for p in await self.pods() if not p.metadata.deletion_timestamp]

    async def ready(self, count: int, name: str = "web") -> bool:
        """Whether a controller reports that so many are ready and no more exist."""
        status = (await self.controller(name)).status
        return status.ready_replicas == count and status.replicas == count

    async def events(self, reason: str) -> list[Event]:
        """Events of a reason."""
        return [e for e in (await self.client.list(EVENT)).items if e.reason == reason]

    async def hold_ready(self, node: str) -> None:
        """Pods that come to the node from now on do not start."""
        self.unready.add(node)

    async def let_ready(self, node: str) -> None:
        """They do again."""
        self.unready.discard(node)

    # --- hands --------------------------------------------------------------------------------

    async def hands(self) -> None:
        """Do what scheduler and agents would, ten times a second; leases every ten seconds.

        Where nothing has changed since the last time, there is nothing to do again.
        """
        heartbeat = self.clock.monotonic()
        seen: object = None
        while True:
            due = self.clock.monotonic() - heartbeat >= 10.0
            now = (self.store.revision, frozenset(self.silent), frozenset(self.unready))
            if due or now != seen:
                seen = now
                await self._hands(due=due)
                if due:
                    heartbeat = self.clock.monotonic()
            await self.clock.sleep(0.1)

    async def _hands(self, *, due: bool) -> None:
        nodes = {node.metadata.name: node for node in (await self.client.list(NODE)).items}
        if due:
            for name in nodes.keys() - self.silent:
                await self.beat(name)
        pods = await self.pods()
        load = Counter(pod.spec.node_name for pod in pods)
        for pod in pods:
            with suppress(NotFound, Conflict):
                await self._move(pod, nodes, load)

    async def _move(self, pod: Pod, nodes: Mapping[str, Node], load: Counter[str]) -> None:
        meta = pod.metadata
        node = pod.spec.node_name
        if not node:
            affinity = node_rules.of_pod(pod.spec)
            fits = [
                name
                for name, found in nodes.items()
                if name not in self.silent
                and node_rules.matches(affinity, name, found.metadata.labels)
            ]
            if fits:
                target = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": min(fits, key=lambda n: (load[n], n)),
                }
                load[target["name"]] += 1
                await self.client.post(
                    POD, meta.name, meta.namespace, "binding", {"target": target}
                )
        elif node in self.silent or node not in nodes:
            return
        elif meta.deletion_timestamp:
            await self.client.delete(POD, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0)
        elif pod.status.phase == "Pending" and node not in self.unready:
            await self.set_phase(pod, "Running")

    async def set_phase(self, pod: Pod, phase: str) -> None:
        """What the agent reports about the pod."""
        ready = {
            "type": "Ready",
            "status": str(phase == "Running"),
            "lastTransitionTime": self._now(),
        }
        await self.client.patch(
            POD,
            pod.metadata.name,
            pod.metadata.namespace,
            patch={
                "metadata": {"uid": pod.metadata.uid},
                "status": {"phase": phase, "conditions": [ready]},
            },
            subresource="status",
        )

    def _now(self) -> str:
        return timestamps.rfc3339(self.clock.now())


@asynccontextmanager
async def world(
    clock: Clock, rng: Stream, log: Logger, *, hands: bool = True, kind: type[World] = World
) -> AsyncIterator[World]:
    """A world whose informers (and hands) run until the block ends."""
    async with opened(kind(clock, rng, log)) as made:
        made.nursery.start(made.informers.run())
        if hands:
            made.nursery.start(made.hands())
        yield made


def report_controllers(
    sink: AlertSink,
    informer: Informer[ReplicationController],
    clock: Clock,
    *,
    owns: Callable[[ObjectKey], bool] = lambda _: True,
    after_s: Mapping[str, float] = MappingProxyType({}),
) -> ConditionAlerts[ReplicationController]:
    """Report the alerts of controllers to a sink; by default of all, at once."""
    return ConditionAlerts(
        Alerts(sink),
        informer,
        find=partial(condition_types.alerts_of, after_s=after_s),
        owns=owns,
        about=lambda key: f"replicationcontroller/{key}",
        clock=clock,
    )
