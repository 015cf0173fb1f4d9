"""The machine pool over NodePools: available machines of dedicated pools, claimed for an object.

A claim is on the Machine itself, so it survives every crash and people see it. Each is one write at
the version that was read: of several that want a machine, a pod's dispenser included, one gets it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from grange.api.kinds import MACHINE, NODE, NODEPOOL
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import DEDICATED
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.machine_phases import MachineEvent, MachinePhase
from grange.api.meta import Document, ObjectKey, Resource
from grange.api.status import ApiError, Conflict, NotFound
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.disruption.disruption_progress import is_disrupted
from grange.machines.holders.claim_requests import ClaimRequests
from grange.machines.holders.holder_epochs import HolderEpochs
from grange.placement.node_demand import Demand
from grange.reconcile.deps import Deps
from grange.reconcile.latest_views import LatestViews
from grange.reconcile.machine_pool import PoolExhausted, StaleRequest

_TRIES = 8
_CLAIMS_OF_EPOCH = 1 << 20  # so that a later epoch outranks the claims of a process before it
_REMEDY = "label nodes to match spec.nodeSelector, add nodes, or add machines to a pool"
_P, _E = MachinePhase, MachineEvent


class NodePoolMachines:
    """Lends available machines of dedicated pools; see ``MachinePool``.

    Machines that are meant for a waiting pod are left to it, and so are those that end, are cordoned or
    are taken away. Standby of a pool is what can be had at once, and is refilled by the pool. A pool is
    asked for what is missing: a later attempt of the claim has it.

    Args:
        deps: client and informers.
    """

    def __init__(self, deps: Deps) -> None:
        self._client = deps.client
        self._updater = StatusUpdater(deps.client, deps.clock)
        self._epochs = HolderEpochs(deps.client)
        self._requests = ClaimRequests(deps.client, deps.informers.informer(NODEPOOL), deps.clock)
        self._machines = deps.informers.informer(MACHINE)
        self._pools = deps.informers.informer(NODEPOOL)
        self._nodes = deps.informers.informer(NODE)
        self._views = LatestViews(self._machines)
        self._known: dict[str, str] | None = None
        self._claims = 0
        self._machines.add_handler(self._seen, lambda _, new: self._seen(new), self._seen)
        self._pools.add_handler(self._seen, lambda _, new: self._seen(new), self._seen)

    # --- the protocol ------------------------------------------------------------------------------

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        """Claim machines.

        A claim that ends halfway is completed by the next one under its id; the holder sees what it has.
        A write of an earlier claim may arrive after that. What it claimed is more than was asked for:
        the next claim under the id gives it back, and answers with the same machines as before.

        Raises:
            PoolExhausted: there are not so many; a pool is asked for them, if one can have them.
            StaleRequest: the epoch is over.
            ApiError: a request failed, and may have succeeded.
        """
        await self._synced()
        if not any(pool.spec.mode == DEDICATED for pool in self._pools.store.list()):
            raise _exhausted(count, 0, _REMEDY)
        await self._epochs.admit(holder, epoch)
        requirement = Demand.of(demand)
        fields: Document = {
            "holder": f"ReplicationController/{demand.key}",
            "holderUID": holder,
            "holderEpoch": epoch,
            "requestID": request_id,
        }
        fresh: list[Machine] = []
        missing, free = count, 0
        try:
            for _ in range(_TRIES):
                machines = (await self._client.list(MACHINE)).items
                given, late = _under(request_id, _held_by(holder, machines), count)
                if late:
                    await self._return_unused(late, "it was claimed after the request was met")
                    continue
                missing = count - len(given)
                if missing > 0:
                    usable = [one for one in machines if self._is_free(one, requirement)]
                    if (free := len(usable)) < missing:
                        raise _exhausted(missing, free, _REMEDY)
                    self._claims += 1
                    fields["claimGeneration"] = self._generation(epoch)
                    for machine in sorted(usable, key=_name)[:missing]:
                        fresh += await self._claim(machine, fields)
                elif await self._stamp(holder, machines, epoch, request_id):
                    await self._epochs.check(holder, epoch)
                    await self._requests.withdraw(request_id, holder)
                    return tuple(sorted(one.node for one in given))
        except (PoolExhausted, StaleRequest) as error:
            await self._return_unused(fresh, "the claim was not completed")
            if isinstance(error, PoolExhausted):
                with suppress(ApiError):  # asked again by the next try; what is missing stays true
                    if asked := await self._requests.ask(request_id, holder, demand, count):
                        raise _exhausted(missing, free, asked) from None
            raise
        raise _restless()

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        """Give machines back that the holder has; each is wiped or ended, as its pool has it.

        Raises:
            StaleRequest: the epoch is over.
            ApiError: a request failed; to be tried again.
        """
        wanted = {*names} & (await self.holders()).keys()
        if not wanted:
            return
        for _ in range(_TRIES):
            # Read before the epoch is: what a later owner does after that is a newer version.
            machines = (await self._client.list(MACHINE)).items
            await self._epochs.admit(holder, epoch)
            held = [one for one in _held_by(holder, machines) if one.node in wanted]
            done = [
                await self._give_back(one, _E.RETURNED_USED, "its holder has released it")
                for one in held
            ]
            kept = [one for one in machines if one.node not in wanted]
            if all(done) and await self._stamp(holder, kept, epoch):
                return
        raise _restless()

    async def holders(self) -> Mapping[str, str]:
        """Every machine of dedicated pools by node name: UID of its holder, or empty."""
        await self._synced()
        if self._known is None:
            self._known = {}
            for one in self._machines.store.list():
                pool = self._pools.store.get(ObjectKey("", one.spec.pool))
                machine = self._views.get(one.key) or one
                dedicated = pool is None or pool.spec.mode == DEDICATED
                if dedicated and machine.phase is not _P.TERMINATED:
                    held = machine.phase is _P.CLAIMED
                    self._known[machine.node] = machine.status.holder_uid if held else ""
        return self._known

    # --- machines ----------------------------------------------------------------------------------

    async def _claim(self, machine: Machine, fields: Document) -> list[Machine]:
        """The claimed machine; nothing where another write was first."""
        message = f"by {fields['holder']}"
        try:
            moved = await self._updater.move(
                machine, _E.CLAIM, reason="Claimed", message=message, fields=fields
            )
        except (Conflict, NotFound):
            return []
        self._wrote(moved)
        return [moved]

    def _is_free(self, machine: Machine, requirement: Demand) -> bool:
        """Whether nothing has the machine or is about to have it, and its node meets the requirement."""
        pool = self._pools.store.get(ObjectKey("", machine.spec.pool))
        if pool is None or pool.spec.mode != DEDICATED or machine.phase is not _P.AVAILABLE:
            return False
        if machine.status.bound_pod_uid or machine.is_ending or is_disrupted(machine):
            return False
        node = self._nodes.store.get(ObjectKey("", machine.node))
        return node is not None and requirement.accepts(node)

    def _generation(self, epoch: int) -> int:
        """Higher for each later claim, of this process and of the holder's later owners."""
        return epoch * _CLAIMS_OF_EPOCH + self._claims

    async def _stamp(
        self, holder: str, machines: Collection[Machine], epoch: int, met: str = ""
    ) -> bool:
        """Write the epoch to the holder's machines, so that no earlier request changes them any more.

        Args:
            holder: whose.
            machines: as they were read.
            epoch: of the request.
            met: id of the request that has what it asked for. Its machines get the generation, too: one
                that an earlier claim of it may claim yet has less.

        Returns:
            Whether all have it; False where one has changed meanwhile.
        """
        generation = self._generation(epoch)
        for machine in _held_by(holder, machines):
            status, fields = machine.status, {}
            if status.holder_epoch < epoch:
                fields["holderEpoch"] = epoch
            if met and status.request_id == met and status.claim_generation < generation:
                fields["claimGeneration"] = generation
            if fields:
                try:
                    self._wrote(await self._updater.update(machine, fields))
                except (Conflict, NotFound):
                    return False
        return True

    async def _return_unused(self, machines: Collection[Machine], message: str) -> None:
        for machine in machines:
            await self._give_back(machine, _E.RETURNED_UNUSED, message)

    async def _give_back(self, machine: Machine, event: MachineEvent, message: str) -> bool:
        """Give a machine back; False where it has changed meanwhile."""
        try:
            self._wrote(
                await self._updater.move(machine, event, reason="Released", message=message)
            )
        except NotFound:
            return True
        except Conflict:
            return False
        return True

    # --- what is known -----------------------------------------------------------------------------

    async def _synced(self) -> None:
        for informer in (self._machines, self._pools, self._nodes):
            await informer.synced.wait()

    def _seen(self, _: Resource) -> None:
        self._known = None

    def _wrote(self, machine: Machine) -> None:
        self._views.wrote(machine)
        self._known = None


def _exhausted(count: int, free: int, remedy: str) -> PoolExhausted:
    nodes = "node" if count == 1 else "nodes"
    return PoolExhausted(
        f"{count} more {nodes} wanted, {free} available in dedicated pools: {remedy}"
    )


def _name(machine: Machine) -> str:
    return machine.metadata.name


def _restless() -> Conflict:
    return Conflict("machines change all the time; try again")


def _held_by(holder: str, machines: Collection[Machine]) -> list[Machine]:
    """The machines of a holder that do not end."""
    return [
        one
        for one in machines
        if one.phase is _P.CLAIMED and one.status.holder_uid == holder and not one.is_ending
    ]


def _under(
    request_id: str, held: Collection[Machine], count: int
) -> tuple[list[Machine], list[Machine]]:
    """The machines of a request, as many as it asked for, and what was claimed for it beyond that."""
    found = [one for one in held if one.status.request_id == request_id]
    found.sort(key=lambda one: (-one.status.claim_generation, _name(one)))
    return found[:count], found[count:]
