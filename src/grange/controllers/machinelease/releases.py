"""Taking machines back: each node is free when no pod of its lease is left on it and it is clean."""

from grange.api.kinds import MACHINELEASE, POD
from grange.api.kinds.machinelease import (
    EXPIRED,
    LEASED,
    MACHINE_LEASE,
    RELEASE_FINALIZER,
    MachineLease,
)
from grange.api.status import NotFound
from grange.client.client import Client
from grange.controllers.machinelease import logic, node_marks
from grange.controllers.machinelease.claims import LeaseClaims
from grange.controllers.machinelease.lease_listers import LeaseListers
from grange.placement.machine_table import PoolMachine
from grange.reconcile import control, finalizers


class LeaseReleases:
    """Releases machines of leases that ended.

    Args:
        client: to the API.
        listers: what is known.
        claims: writes to nodes.
    """

    def __init__(self, client: Client, listers: LeaseListers, claims: LeaseClaims) -> None:
        self._client, self._listers, self._claims = client, listers, claims

    async def release(self, lease: MachineLease) -> bool:
        """Free what can be freed; whether the lease has no machine any more.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        uid = lease.metadata.uid
        if lease.status.phase == EXPIRED:
            for pod in self._listers.pods_of(uid):
                await control.delete_object(self._client, POD, pod)
        for machine in self._listers.table.of(uid):
            await self._release(machine, lease)
        if self._listers.table.of(uid):
            return False
        if lease.metadata.deletion_timestamp:
            try:
                left = await finalizers.remove(self._client, MACHINELEASE, lease, RELEASE_FINALIZER)
            except NotFound:
                return True
            self._listers.wrote_lease(left)
        return True

    async def release_surplus(self, lease: MachineLease) -> None:
        """Free machines that bear the marks of a granted lease and were not granted to it.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        granted = {machine.node for machine in lease.status.machines}
        for machine in self._listers.table.of(lease.metadata.uid):
            if machine.node not in granted and await self._is_empty(machine):
                await self._claims.unmark(machine.node, lease.metadata.uid)

    async def release_orphan(self, name: str) -> None:
        """Free a machine whose lease is gone, where no pod of it is left.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        machine = self._listers.table.get(name)
        if machine is None or not machine.lease:
            return
        if self._listers.lease_of(machine.lease) is not None:
            return
        # The cache of leases may be behind that of nodes.
        live = await self._client.list(MACHINELEASE)
        if any(lease.metadata.uid == machine.lease for lease in live.items):
            return
        if await self._is_empty(machine):
            await self._claims.unmark(name, machine.lease)

    async def _release(self, machine: PoolMachine, lease: MachineLease) -> None:
        clean = logic.is_clean(machine, lease)
        empty = await self._is_empty(machine)
        if empty and clean:
            await self._claims.unmark(machine.node, machine.lease)
        elif machine.state == LEASED and (clean is None or not empty):
            node = self._listers.node(machine.node)
            if node is not None:
                await self._claims.write(node, node_marks.dirty(node))

    async def _is_empty(self, machine: PoolMachine) -> bool:
        """Whether no pod of the lease is left on a machine, in the cache and at the server."""
        on_it = (pod.spec.node_name == machine.node for pod in self._listers.pods_of(machine.lease))
        if any(on_it):
            return False
        fields = f"spec.nodeName={machine.node}"
        labels = f"{MACHINE_LEASE}={machine.lease}"
        return not (await self._client.list(POD, fields=fields, labels=labels)).items
