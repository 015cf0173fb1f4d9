"""A small world for tests of the machine lease controller: a real API server in memory, and nodes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from grange.api import conditions
from grange.api.http import User
from grange.api.kinds import EVENT, LEASEPOLICY, MACHINELEASE, NODE, NODEPOOL, POD
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.machinelease import (
    MACHINE_LEASE,
    STATE_ANNOTATION,
    MachineLease,
    MachineLeaseStatus,
)
from grange.api.kinds.node import Node
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.machinelease.config import MachineLeaseConfig
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, opened

MANAGER = User("grange:admin", ("system:masters", "system:authenticated"))


class LeaseWorld(ApiFixture):
    """Handles to everything in one test.

    Attributes:
        deps: of the controller under test.
        controller: which runs.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log, user=MANAGER)
        self.deps = self.new_deps()
        self.controller = MachineLeaseController(self.deps, MachineLeaseConfig(settle_s=0.5))

    async def add_nodes(self, *names: str, pool: str = "w", node_pool: str = "") -> None:
        """Ready nodes of a pool; those of a NodePool have their labels only then."""
        labels = {"pool": pool}
        for name in names:
            await builders.create_node(self.client, name, labels={} if node_pool else labels)
            await self.set_ready(name, "True")
            if node_pool:
                made = {"metadata": {"labels": {**labels, NODE_POOL_LABEL: node_pool}}}
                await self.client.patch(NODE, name, patch=made)

    async def set_ready(self, name: str, status: str) -> None:
        """What the node's agent reports."""
        found = [{"type": "Ready", "status": status}]
        await self.client.patch(
            NODE, name, patch={"status": {"conditions": found}}, subresource="status"
        )

    async def cordon(self, name: str, *, on: bool = True) -> None:
        await self.client.patch(NODE, name, patch={"spec": {"unschedulable": on}})

    async def add_lease(
        self, name: str, need: int | Mapping[str, int] = 1, **spec: Any
    ) -> MachineLease:
        machines = {"w": need} if isinstance(need, int) else need
        requests = [{"pool": pool, "count": count} for pool, count in machines.items()]
        document: Document = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"machines": requests, **spec},
        }
        return await self.client.create(MACHINELEASE, document, "default")

    async def add_node_pool(
        self, name: str, *, machines: int | None = None, pool: str = "w", **spec: Any
    ) -> None:
        """A NodePool that makes machines of a pool."""
        limits = {} if machines is None else {"machines": machines}
        whole = {"provider": "simulated", "template": {"labels": {"pool": pool}}, **spec}
        document: Document = {"metadata": {"name": name}, "spec": {**whole, "limits": limits}}
        await self.client.create(NODEPOOL, document)

    async def set_policy(self, **spec: Any) -> None:
        """Replace the policy."""
        try:
            await self.client.patch(LEASEPOLICY, "default", patch={"spec": spec})
        except NotFound:
            document: Document = {"metadata": {"name": "default"}, "spec": spec}
            await self.client.create(LEASEPOLICY, document)

    async def add_pod(self, name: str, node: str, lease: str = "", **spec: Any) -> None:
        """A pod that is bound to a node, and of a lease."""
        labels = {MACHINE_LEASE: lease} if lease else {}
        document = builders.pod_document(name, labels=labels, nodeName=node, **spec)
        document["spec"]["terminationGracePeriodSeconds"] = 30
        await self.client.create(POD, document, "default")
        await self.client.patch(
            POD, name, "default", patch={"status": {"phase": "Running"}}, subresource="status"
        )

    async def remove_pod(self, name: str) -> None:
        await self.client.delete(POD, name, "default", grace_period_s=0)

    async def delete(self, name: str) -> None:
        await self.client.delete(MACHINELEASE, name, "default")

    async def lease(self, name: str) -> MachineLease:
        return await self.client.get(MACHINELEASE, name, "default")

    async def status(self, name: str) -> MachineLeaseStatus:
        return (await self.lease(name)).status

    async def machines(self, name: str) -> list[str]:
        return [machine.node for machine in (await self.status(name)).machines]

    async def reaches(self, name: str, phase: str, *, limit_s: float = 10.0) -> float:
        """Wait for a phase; the virtual seconds that it took."""

        async def reached() -> bool:
            return (await self.status(name)).phase == phase

        return await self.until(reached, limit_s=limit_s)

    async def gone(self, name: str, *, limit_s: float = 10.0) -> float:
        """Wait until a lease is gone."""

        async def missing() -> bool:
            try:
                await self.lease(name)
            except NotFound:
                return True
            return False

        return await self.until(missing, limit_s=limit_s)

    async def node(self, name: str) -> Node:
        return await self.client.get(NODE, name)

    async def marks(self) -> dict[str, tuple[str, str]]:
        """Lease and state of the nodes that have marks; the label must agree with the taint."""
        found = {}
        for node in (await self.client.list(NODE)).items:
            uid = node.metadata.labels.get(MACHINE_LEASE, "")
            taints = [taint.value for taint in node.spec.taints if taint.key == MACHINE_LEASE]
            assert taints == ([uid] if uid else [])
            if uid:
                state = node.metadata.annotations.get(STATE_ANNOTATION, "")
                found[node.metadata.name] = (uid, state)
        return found

    async def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = conditions.find((await self.status(name)).conditions, kind)
        return (found.status, found.reason) if found is not None else ("", "")

    async def events(self, reason: str) -> list[str]:
        """Messages of the events of a reason."""
        items = (await self.client.list(EVENT)).items
        return [event.message for event in items if event.reason == reason]


@asynccontextmanager
async def lease_world(
    clock: Clock, rng: Stream, log: Logger, *, runs: bool = True
) -> AsyncIterator[LeaseWorld]:
    """A world whose controller runs."""
    async with opened(LeaseWorld(clock, rng, log)) as world:
        world.nursery.start(world.deps.informers.run())
        if runs:
            world.start(world.controller)
        yield world
