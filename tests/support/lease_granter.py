"""Grants machine leases in simulated worlds: first come, first served; nothing else of the protocol.

Granted nodes bear the lease's UID as label and taint. A lease that is deleted stays until no pod with
its UID is left.
"""

from contextlib import suppress

from grange.api.kinds import MACHINELEASE, NODE, POD
from grange.api.kinds.machinelease import (
    GRANTED,
    MACHINE_LEASE,
    POOL_LABEL,
    RELEASE_FINALIZER,
    MachineLease,
)
from grange.api.kinds.node import Node
from grange.api.meta import Document, preconditions
from grange.api.status import ApiError
from grange.client.client import Client
from grange.reconcile import finalizers
from grange.reconcile.deps import Deps


class LeaseGranter:
    """Looks at all leases and nodes, twice a second.

    Args:
        deps: client and clock.
    """

    def __init__(self, deps: Deps) -> None:
        self._client: Client = deps.client
        self._clock = deps.clock

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            with suppress(ApiError):  # it looks again
                await self._look()
            await self._clock.sleep(0.5)

    async def _look(self) -> None:
        leases = (await self._client.list(MACHINELEASE)).items
        nodes = (await self._client.list(NODE)).items
        live = {lease.metadata.uid for lease in leases}
        for node in nodes:
            if (holder := node.metadata.labels.get(MACHINE_LEASE)) and holder not in live:
                await self._mark(node, None)
        for lease in sorted(leases, key=lambda one: one.metadata.creation_timestamp or ""):
            if lease.metadata.deletion_timestamp:
                await self._release(lease, nodes)
            elif not lease.status.phase:
                await self._grant(lease)

    async def _release(self, lease: MachineLease, nodes: list[Node]) -> None:
        uid = lease.metadata.uid
        if (await self._client.list(POD, labels=f"{MACHINE_LEASE}={uid}")).items:
            return
        for node in nodes:
            if node.metadata.labels.get(MACHINE_LEASE) == uid:
                await self._mark(node, None)
        await finalizers.remove(self._client, MACHINELEASE, lease, RELEASE_FINALIZER)

    async def _grant(self, lease: MachineLease) -> None:
        if not finalizers.has(lease, RELEASE_FINALIZER):
            lease = await finalizers.add(self._client, MACHINELEASE, lease, RELEASE_FINALIZER)
        nodes, uid = (await self._client.list(NODE)).items, lease.metadata.uid
        chosen: list[tuple[str, Node]] = []
        for request in lease.spec.machines:
            fitting = [
                node
                for node in nodes
                if node.metadata.labels.get(POOL_LABEL) == request.pool
                and node.metadata.labels.get(MACHINE_LEASE, uid) == uid
                and any(
                    item.type == "Ready" and item.status == "True"
                    for item in node.status.conditions
                )
            ]
            chosen += [(request.pool, node) for node in fitting[: request.count]]
        if len(chosen) < sum(request.count for request in lease.spec.machines):
            return
        for _, node in chosen:
            await self._mark(node, uid)
        machines = [{"pool": pool, "node": node.metadata.name} for pool, node in chosen]
        patch: Document = {
            "metadata": {"uid": uid},
            "status": {"phase": GRANTED, "machines": machines},
        }
        meta = lease.metadata
        await self._client.patch(
            MACHINELEASE, meta.name, meta.namespace, patch=patch, subresource="status"
        )

    async def _mark(self, node: Node, uid: str | None) -> None:
        others = [
            {"key": item.key, "value": item.value, "effect": item.effect}
            for item in node.spec.taints
            if item.key != MACHINE_LEASE
        ]
        taints = [{"key": MACHINE_LEASE, "value": uid, "effect": "NoSchedule"}] if uid else []
        patch: Document = {
            "metadata": {**preconditions(node.metadata), "labels": {MACHINE_LEASE: uid}},
            "spec": {"taints": [*others, *taints]},
        }
        await self._client.patch(NODE, node.metadata.name, patch=patch)
