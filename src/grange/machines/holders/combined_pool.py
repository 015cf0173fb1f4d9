"""Machines of NodePools and of lease pools as one machine pool."""

from collections.abc import Collection, Mapping, Sequence

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.machines.holders.lease_machines import LeaseMachines
from grange.machines.holders.node_pool_machines import NodePoolMachines
from grange.reconcile.deps import Deps


class CombinedMachinePool:
    """Leases machines for controllers that a lease pool serves, and claims those of NodePools for others.

    Which of them it is follows from the controller's selector and the labels of nodes alone, so the same
    request is answered by the same pool.

    Args:
        deps: client, informers and clock.
    """

    def __init__(self, deps: Deps) -> None:
        self._leases, self._node_pools = LeaseMachines(deps), NodePoolMachines(deps)

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        """Lease or claim machines.

        Raises:
            PoolExhausted: there are not so many.
            StaleRequest: the epoch is over.
            ApiError: a request failed, and may have succeeded.
        """
        pool = self._leases if await self._leases.serves(demand) else self._node_pools
        return await pool.claim(request_id, holder=holder, demand=demand, count=count, epoch=epoch)

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        """Give machines back.

        Raises:
            StaleRequest: the epoch is over.
            ApiError: a request failed; to be tried again.
        """
        await self._leases.release(names, holder=holder, epoch=epoch)
        await self._node_pools.release(names, holder=holder, epoch=epoch)

    async def holders(self) -> Mapping[str, str]:
        """Every machine by node name: UID of its holder, or empty."""
        found = dict(await self._node_pools.holders())
        for name, holder in (await self._leases.holders()).items():
            found[name] = holder or found.get(name, "")
        return found
