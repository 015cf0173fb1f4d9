"""The machine pool over MachineLeases: machines of the pools that ``LeasePolicy.spec.replicationPools`` names.

A claim is one lease for each machine, with a name that follows from the holder and the request: the next
attempt finds it. Leases wait in the queue with all others, but not for long: what is not granted at once is
withdrawn. A machine is released by deleting its lease.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import msgspec

from grange.api import names
from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, REPLICATIONCONTROLLER
from grange.api.kinds.leasepolicy import POLICY_NAME, LeasePolicySpec
from grange.api.kinds.machinelease import EXPIRED, GRANTED, REJECTED, MachineLease, pool_of
from grange.api.kinds.node import Node
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.machine_claims import EPOCH_ANNOTATION, HOLDER_LABEL, REQUEST_ANNOTATION
from grange.api.meta import Document, ObjectKey, preconditions
from grange.api.status import AlreadyExists, Conflict, NotFound
from grange.machines.holders.holder_epochs import HolderEpochs
from grange.placement.machine_pools import is_usable
from grange.placement.machine_table import lease_of
from grange.placement.node_demand import Demand
from grange.reconcile import owners
from grange.reconcile.deps import Deps
from grange.reconcile.held_leases import is_granted
from grange.reconcile.latest_views import LatestViews
from grange.reconcile.machine_pool import PoolExhausted, StaleRequest

GRANT_S = 3.0
"""So long a claim waits for its leases; less than its callers wait for the pool."""

_TRIES = 8
_BY_POOL = "lease-machines/pool"
_REMEDY = "label nodes to match spec.nodeSelector, add nodes, or add machines to a pool"


class LeaseMachines:
    """Leases machines for ReplicationControllers; see ``MachinePool``.

    A pool serves a controller that accepts all of its free machines: which of them a lease is given is not
    chosen here.

    Args:
        deps: client, informers and clock.
    """

    def __init__(self, deps: Deps) -> None:
        self._client, self._clock = deps.client, deps.clock
        self._epochs = HolderEpochs(deps.client)
        self._leases = deps.informers.informer(MACHINELEASE)
        self._policies = deps.informers.informer(LEASEPOLICY)
        self._nodes = deps.informers.informer(NODE)
        self._nodes.store.add_index(_BY_POOL, _pools)
        self._views = LatestViews(self._leases)
        self._deleted: dict[str, None] = {}  # UIDs of leases that the cache still shows
        self._known: dict[str, str] | None = None
        self._changed = asyncio.Event()
        self._leases.add_handler(self._seen, lambda _, new: self._seen(new), self._gone)
        self._policies.add_handler(self._forget, lambda *_: self._forget(), self._forget)
        self._nodes.add_handler(self._forget, self._node_changed, self._forget)

    async def serves(self, demand: ReplicationController) -> bool:
        """Whether a pool has a node that the controller selects."""
        await self._synced()
        requirement = Demand.of(demand)
        pools = self._policy().replication_pools
        return any(requirement.selects(node) for pool in pools for node in self._of_pool(pool))

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
        """Lease machines.

        A claim that ends halfway is completed by the next one under its id; the holder sees what it has.

        Raises:
            PoolExhausted: not all leases were granted at once; those of the claim are withdrawn.
            StaleRequest: the epoch is over.
            ApiError: a request failed, and may have succeeded.
        """
        await self._synced()
        await self._epochs.admit(holder, epoch)
        digest = names.digest(holder, request_id)
        keys = [
            ObjectKey(demand.metadata.namespace, f"transfer-{digest}-{number}")
            for number in range(count)
        ]
        there = [lease for key in keys if (lease := await self._read(key)) is not None]
        if any(lease.metadata.deletion_timestamp for lease in there):
            raise PoolExhausted(f"{_more(count)} wanted: those of the request are being released")
        fresh: list[MachineLease] = []
        try:
            if len(there) < count:
                pool = self._choose(Demand.of(demand), count - len(there))
                missing = [key for key in keys if key not in {lease.key for lease in there}]
                for key in missing:
                    fresh += [await self._create(key, pool, demand, holder, request_id)]
            leases = await self._stamped(keys, epoch, demand)
            await self._epochs.check(holder, epoch)
        except PoolExhausted:
            for lease in [*there, *fresh]:
                if lease in fresh or not lease.metadata.annotations.get(EPOCH_ANNOTATION):
                    await self._withdraw(lease, epoch)
            raise
        except StaleRequest:
            for lease in fresh:
                await self._withdraw(lease, epoch)
            raise
        return tuple(sorted(machine.node for one in leases for machine in one.status.machines))

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        """Delete the leases of machines; each is free when the holder's pods on it are gone.

        Raises:
            StaleRequest: the epoch is over.
            ApiError: a request failed; to be tried again.
        """
        wanted = {*names} & (await self.holders()).keys()
        if not wanted:
            return
        for _ in range(_TRIES):
            # Read before the epoch is: what a later owner does after that is a newer version.
            listed = await self._client.list(MACHINELEASE, labels=f"{HOLDER_LABEL}={holder}")
            await self._epochs.admit(holder, epoch)
            done = True
            for lease in listed.items:
                if lease.metadata.deletion_timestamp:
                    self._note_deleted(lease)
                elif wanted.isdisjoint(machine.node for machine in lease.status.machines):
                    done = (not is_granted(lease) or await self._stamp(lease, epoch)) and done
                else:
                    done = await self._delete(lease) and done
            if done:
                return
        raise _restless()

    async def holders(self) -> Mapping[str, str]:
        """Machines of the pools, and others that are leased for controllers, by node name.

        A machine that has another lease is left out: its taint keeps it.
        """
        await self._synced()
        if self._known is None:
            leases = [self._views.get(one.key) or one for one in self._leases.store.list()]
            others = {one.metadata.uid for one in leases if HOLDER_LABEL not in one.metadata.labels}
            self._known = {
                node.metadata.name: ""
                for pool in self._policy().replication_pools
                for node in self._of_pool(pool)
                if lease_of(node) not in others
            }
            for lease in leases:
                holder = lease.metadata.labels.get(HOLDER_LABEL, "")
                if holder and is_granted(lease) and lease.metadata.uid not in self._deleted:
                    nodes = (machine.node for machine in lease.status.machines)
                    self._known.update(dict.fromkeys(nodes, holder))
        return self._known

    # --- leases ------------------------------------------------------------------------------------

    def _choose(self, requirement: Demand, count: int) -> str:
        """A pool that has so many free machines, as far as the nodes show it.

        Raises:
            PoolExhausted: none has.
        """
        policy, most = self._policy(), 0
        if policy.paused:
            raise PoolExhausted(f"{_more(count)} wanted: the queue of leases is paused")
        for pool in policy.replication_pools:
            if pool in policy.draining_pools:
                continue
            free = [one for one in self._of_pool(pool) if is_usable(one) and not lease_of(one)]
            if all(requirement.accepts(node) for node in free):
                if len(free) >= count:
                    return pool
                most = max(most, len(free))
        raise PoolExhausted(
            f"{_more(count)} wanted, {most} free in spec.replicationPools: {_REMEDY}"
        )

    async def _create(
        self,
        key: ObjectKey,
        pool: str,
        controller: ReplicationController,
        holder: str,
        request_id: str,
    ) -> MachineLease:
        owner = owners.owner_reference(REPLICATIONCONTROLLER, controller)
        document: Document = {
            "metadata": {
                "name": key.name,
                "labels": {HOLDER_LABEL: holder},
                "annotations": {REQUEST_ANNOTATION: request_id},
                "ownerReferences": [msgspec.to_builtins(owner)],
            },
            "spec": {
                "machines": [{"pool": pool, "count": 1}],
                "holder": {
                    "kind": REPLICATIONCONTROLLER.kind,
                    "name": controller.metadata.name,
                    "uid": holder,
                },
            },
        }
        try:
            made = await self._client.create(MACHINELEASE, document, key.namespace)
        except AlreadyExists:
            made = await self._client.get(MACHINELEASE, key.name, key.namespace)
        self._wrote(made)
        return made

    async def _stamped(
        self, keys: Sequence[ObjectKey], epoch: int, demand: ReplicationController
    ) -> list[MachineLease]:
        """The leases when all are granted and have the epoch.

        Raises:
            PoolExhausted: they are not granted, or the controller does not select what was.
        """
        for _ in range(_TRIES):
            leases = await self._granted(keys, demand)
            if all([await self._stamp(lease, epoch) for lease in leases]):
                return leases
        raise _restless()

    async def _granted(
        self, keys: Sequence[ObjectKey], demand: ReplicationController
    ) -> list[MachineLease]:
        with suppress(TimeoutError):
            async with self._clock.timeout(GRANT_S):
                while not all(map(self._is_decided, keys)):
                    self._changed.clear()
                    await self._changed.wait()
        read = [await self._read(key) for key in keys]
        found = [lease for lease in read if lease is not None and is_granted(lease)]
        if (short := len(keys) - len(found)) > 0:
            waits = (one.status.message for one in read if one is not None and one not in found)
            why = next(filter(None, waits), "they were not granted at once")
            raise PoolExhausted(f"{_more(short)} wanted: {why}")
        requirement = Demand.of(demand)
        for lease in found:
            for machine in lease.status.machines:
                node = self._nodes.store.get(ObjectKey("", machine.node))
                if node is not None and not requirement.selects(node):
                    raise PoolExhausted(
                        f"{_more(1)} wanted: machines of pool {machine.pool} are not alike, and "
                        f"{machine.node} does not match"
                    )
        return found

    def _is_decided(self, key: ObjectKey) -> bool:
        lease = self._views.get(key)
        return lease is not None and lease.status.phase in {GRANTED, REJECTED, EXPIRED}

    async def _read(self, key: ObjectKey) -> MachineLease | None:
        try:
            return await self._client.get(MACHINELEASE, key.name, key.namespace)
        except NotFound:
            return None

    async def _stamp(self, lease: MachineLease, epoch: int) -> bool:
        """Write the epoch to a lease, so that no earlier request deletes it; False if it has changed."""
        if _epoch_of(lease) >= epoch and EPOCH_ANNOTATION in lease.metadata.annotations:
            return True
        patch: Document = {
            "metadata": {
                **preconditions(lease.metadata),
                "annotations": {EPOCH_ANNOTATION: f"{epoch}"},
            }
        }
        meta = lease.metadata
        try:
            self._wrote(
                await self._client.patch(MACHINELEASE, meta.name, meta.namespace, patch=patch)
            )
        except (Conflict, NotFound):
            return False
        return True

    async def _withdraw(self, lease: MachineLease, epoch: int) -> None:
        """Delete a lease of a claim that was not completed, unless a later owner has it."""
        found: MachineLease | None = lease
        for _ in range(_TRIES):
            if found is None or found.metadata.uid != lease.metadata.uid:
                return
            if _epoch_of(found) > epoch or await self._delete(found):
                return
            found = await self._read(lease.key)
        raise _restless()

    async def _delete(self, lease: MachineLease) -> bool:
        """Delete a lease; False if it has changed."""
        try:
            await self._client.delete_as_read(MACHINELEASE, lease)
        except NotFound:
            pass
        except Conflict:
            return False
        self._note_deleted(lease)
        return True

    # --- what is known -----------------------------------------------------------------------------

    async def _synced(self) -> None:
        for informer in (self._leases, self._policies, self._nodes):
            await informer.synced.wait()

    def _policy(self) -> LeasePolicySpec:
        found = self._policies.store.get(ObjectKey("", POLICY_NAME))
        return LeasePolicySpec() if found is None else found.spec

    def _of_pool(self, pool: str) -> Sequence[Node]:
        return self._nodes.store.by_index(_BY_POOL, pool)

    def _seen(self, lease: MachineLease) -> None:
        self._changed.set()
        self._forget()

    def _gone(self, lease: MachineLease) -> None:
        self._deleted.pop(lease.metadata.uid, None)
        self._seen(lease)

    def _node_changed(self, old: Node, new: Node) -> None:
        if _pools(old) != _pools(new) or lease_of(old) != lease_of(new):
            self._forget()

    def _forget(self, *_: object) -> None:
        self._known = None

    def _wrote(self, lease: MachineLease) -> None:
        self._views.wrote(lease)
        self._known = None

    def _note_deleted(self, lease: MachineLease) -> None:
        if self._leases.store.get(lease.key) is not None:
            self._deleted[lease.metadata.uid] = None
        self._known = None


def _pools(node: Node) -> tuple[str, ...]:
    pool = pool_of(node)
    return (pool,) if pool else ()


def _epoch_of(lease: MachineLease) -> int:
    text = lease.metadata.annotations.get(EPOCH_ANNOTATION, "")
    return int(text) if text.isdecimal() else 0


def _more(count: int) -> str:
    return f"{count} more {'node' if count == 1 else 'nodes'}"


def _restless() -> Conflict:
    return Conflict("leases change all the time; try again")
