"""Taking machines back: each node is free when no pod of its lease is left on it and it is clean."""

from collections.abc import Collection

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
from grange.controllers.machinelease import logic
from grange.controllers.machinelease.claims import LeaseClaims
from grange.controllers.machinelease.lease_listers import LeaseListers
from grange.placement.machine_table import PoolMachine
from grange.reconcile import control, finalizers
from grange.reconcile.side_by_side import side_by_side


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
        if machines := self._listers.table.of(uid):
            occupied = await self._occupied(uid)

            async def release(machine: PoolMachine) -> None:
                await self._release(machine, lease, is_empty=machine.node not in occupied)

            await side_by_side(machines, release)
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
        uid, granted = lease.metadata.uid, {machine.node for machine in lease.status.machines}
        surplus = [one.node for one in self._listers.table.of(uid) if one.node not in granted]
        occupied = await self._occupied(uid) if surplus else frozenset()
        for node in surplus:
            if node not in occupied:
                await self._claims.unmark(node, uid)

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
        if name not in await self._occupied(machine.lease):
            await self._claims.unmark(name, machine.lease)

    async def _release(self, machine: PoolMachine, lease: MachineLease, *, is_empty: bool) -> None:
        clean = logic.is_clean(machine, lease)
        if is_empty and clean:
            await self._claims.unmark(machine.node, machine.lease)
        elif machine.state == LEASED and (clean is None or not is_empty):
            await self._claims.mark_dirty(machine.node, machine.lease)

    async def _occupied(self, lease: str) -> Collection[str]:
        """The nodes on which pods of a lease are left, in the cache or at the server."""
        listed = await self._client.list(POD, labels=f"{MACHINE_LEASE}={lease}")
        return {pod.spec.node_name for pod in (*self._listers.pods_of(lease), *listed.items)}
