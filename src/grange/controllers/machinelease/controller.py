"""The shell of the machine lease controller: leases by key, and one decision after the other."""

from collections.abc import Awaitable, Callable

import msgspec

from grange.api import conditions, timestamps
from grange.api.kinds import MACHINELEASE
from grange.api.kinds.machinelease import (
    EXPIRED,
    GRANTED,
    QUEUED,
    REJECTED,
    RELEASE_FINALIZER,
    RELEASING,
    MachineLease,
)
from grange.api.meta import ObjectKey
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.tasks import Nursery
from grange.controllers.machinelease import logic
from grange.controllers.machinelease.claims import LeaseClaims, Machines
from grange.controllers.machinelease.config import MachineLeaseConfig
from grange.controllers.machinelease.lease_listers import LeaseListers
from grange.controllers.machinelease.lease_status_writer import LeaseStatusWriter
from grange.controllers.machinelease.metrics import instruments
from grange.controllers.machinelease.releases import LeaseReleases
from grange.placement.lease_model import POOL_AVAILABILITY, POOL_CAPACITY, POOL_UNKNOWN
from grange.placement.machine_pools import (
    PoolCapacityError,
    PoolUnknownError,
    ReservationError,
)
from grange.reconcile import finalizers
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

NAME = "machinelease"

_QUEUE = ObjectKey("", "queue")
_Reconcile = Callable[[ObjectKey], Awaitable[Result]]


class MachineLeaseController:
    """Grants machines and takes them back; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
    """

    def __init__(self, deps: Deps, config: MachineLeaseConfig | None = None) -> None:
        self._config = config or MachineLeaseConfig()
        self._client, self._clock = deps.client, deps.clock
        self._log = deps.log.bind(controller=NAME)
        self._metrics = instruments(deps.metrics)
        self._recorder = Recorder(
            deps.client,
            "machine-lease-controller",
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._tasks: Nursery | None = None

        def loop(name: str, reconcile: _Reconcile, workers: int = 1) -> Controller:
            return Controller(
                name,
                reconcile,
                workers=workers,
                clock=deps.clock,
                rng=deps.rng,
                log=deps.log,
                metrics=deps.metrics,
            )

        self.leases = loop(f"{NAME}-leases", self.reconcile, self._config.workers)
        self.orphans = loop(f"{NAME}-orphans", self.release_orphan)
        self.decisions = loop(f"{NAME}-queue", self.decide)
        self._listers = LeaseListers(
            deps,
            self._config,
            on_lease=self.leases.enqueue,
            on_orphan=lambda node: self.orphans.enqueue(ObjectKey("", node)),
            on_change=lambda: self.decisions.enqueue(_QUEUE),
        )
        self._claims = LeaseClaims(deps.client, self._listers, clock=deps.clock, log=self._log)
        self._releases = LeaseReleases(deps.client, self._listers, self._claims)
        self._status = LeaseStatusWriter(deps, self._config, self._listers, self._log)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._listers.synced()
        self._listers.begin()
        async with Nursery(NAME) as nursery:
            self._tasks = nursery
            nursery.start(self._recorder.run(), name=f"{NAME} events")
            nursery.start(self._status.run(), name=f"{NAME} status")
            for one in (self.leases, self.orphans, self.decisions):
                nursery.start(one.run(), name=one.name)

    # --- leases -------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Do what one lease needs, but for granting it.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        lease = self._listers.lease(key)
        if lease is None or lease.metadata.uid in self._listers.claiming:
            return Done()
        try:
            if logic.is_over(lease):
                await self._end(lease)
                return Done()
            if not finalizers.has(lease, RELEASE_FINALIZER):
                lease = await finalizers.add(self._client, MACHINELEASE, lease, RELEASE_FINALIZER)
                self._listers.wrote_lease(lease)
            now, due = self._clock.now().timestamp(), logic.expires_at(lease)
            if due is not None and due <= now:
                await self._expire(lease)
                return Done()
            if lease.status.phase == GRANTED:
                await self._check_machines(lease)
                await self._releases.release_surplus(lease)
        except NotFound:
            return Done()
        return Done() if due is None else Requeue(max(0.1, due - now))

    async def release_orphan(self, key: ObjectKey) -> Result:
        """Free a machine whose lease is gone.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        await self._releases.release_orphan(key.name)
        return Done()

    async def _end(self, lease: MachineLease) -> None:
        held = bool(self._listers.table.of(lease.metadata.uid))
        if not finalizers.has(lease, RELEASE_FINALIZER):
            return
        if not await self._releases.release(lease):
            if lease.status.phase in {"", QUEUED, GRANTED}:
                await self._status.write(lease, {"phase": RELEASING, "position": 0})
        elif held:
            self._metrics.outcomes.labels("released").inc()
            self._recorder.event(
                lease, NORMAL, "MachinesReleased", "Its machines are free", kind=MACHINELEASE
            )

    async def _expire(self, lease: MachineLease) -> None:
        message = f"not renewed for {lease.spec.ttl_seconds} s"
        status = self._status.final(lease, EXPIRED, "NotRenewed", message)
        await self._status.write(lease, status)
        self._metrics.outcomes.labels("expired").inc()
        self._recorder.event(lease, WARNING, "LeaseExpired", message, kind=MACHINELEASE)

    async def _check_machines(self, lease: MachineLease) -> None:
        """Set the condition MachinesReady."""
        table = self._listers.table
        nodes = [machine.node for machine in lease.status.machines]
        found = {name: machine for name in nodes if (machine := table.get(name)) is not None}
        verdict = logic.machines_verdict(lease, found)
        after = conditions.set_status(
            lease.status.conditions,
            "MachinesReady",
            verdict,
            generation=lease.metadata.generation,
            now=self._clock.now(),
        )
        if after != lease.status.conditions:
            _, reason, message = verdict
            if reason == "MachineLost":
                text = f"Machines are {message}"
                self._recorder.event(lease, WARNING, reason, text, kind=MACHINELEASE)
            await self._status.write(lease, {"conditions": msgspec.to_builtins(after)})

    # --- the queue ----------------------------------------------------------------------------

    async def decide(self, key: ObjectKey) -> Result:
        """Complete or undo claims that were begun, then grant what can be granted.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        listers = self._listers
        listers.stop_avoiding()
        for uid in listers.table.leases():
            lease = listers.lease_of(uid)
            if lease is not None and logic.is_waiting(lease) and uid not in listers.claiming:
                await self._resume(lease)
        wait_s = await self._reject()
        for request in listers.queue.decide(self._clock.now().timestamp()).granted:
            lease = listers.lease_of(request.uid)
            machines = self._claims.choose(lease) if lease is not None else None
            if lease is None or machines is None:
                break  # the caches moved on: another decision follows
            self._start(lease, machines)
        self._status.queue_changed()
        delays = [delay for delay in (wait_s, listers.avoids_for()) if delay is not None]
        return Requeue(max(0.05, min(delays))) if delays else Done()

    async def _resume(self, lease: MachineLease) -> None:
        """A claim was begun, perhaps by another member: complete or undo it."""
        machines = self._claims.choose(lease)
        uid = lease.metadata.uid
        keep = {node for nodes in (machines or {}).values() for node in nodes}
        surplus = [one.node for one in self._listers.table.of(uid) if one.node not in keep]
        if surplus:
            # A grant of these machines that is still on its way must not arrive after this.
            stamp = timestamps.rfc3339_micro(self._clock.now())
            message = f"claim of {', '.join(surplus)} undone at {stamp}"
            status = {"phase": QUEUED, "reason": POOL_AVAILABILITY, "message": message}
            try:
                lease = await self._status.write(lease, status)
            except (NotFound, Conflict):
                return  # it changed: another decision follows
            await self._claims.undo(surplus, uid)
        if machines is not None:
            self._start(lease, machines)

    def _start(self, lease: MachineLease, machines: Machines) -> None:
        if self._tasks is not None:
            self._claims.begin(lease, machines)
            self._tasks.start(self._claim(lease, machines), name=f"claim {lease.key}")

    async def _claim(self, lease: MachineLease, machines: Machines) -> None:
        granted: MachineLease | None = None
        try:
            granted = await self._claims.claim(lease, machines)
        except ApiError as error:
            self._log.warning("claim failed", lease=lease.key, error=error)
            await self._clock.sleep(self._config.retry_s)
        finally:
            self._claims.end(lease, machines)
            self.leases.enqueue(lease.key)
        if granted is None:
            self._metrics.outcomes.labels("claim_failed").inc()
            return
        names = ", ".join(machine.node for machine in granted.status.machines)
        self._recorder.event(granted, NORMAL, "MachinesGranted", names, kind=MACHINELEASE)
        self._metrics.outcomes.labels("granted").inc()
        waited_s = self._clock.now().timestamp() - logic.waiting(granted).created
        for pool in machines:
            self._metrics.wait_seconds.labels(pool).observe(max(0.0, waited_s))

    async def _reject(self) -> float | None:
        """End leases that can never be granted; seconds until the next one may be."""
        wait_s: float | None = None
        for request, pool, size in self._listers.queue.impossible():
            lease = self._listers.lease_of(request.uid)
            if lease is None:
                continue
            if (left_s := self._listers.settles_in(pool)) > 0:
                wait_s = left_s if wait_s is None else min(left_s, wait_s)
                continue
            asked = dict(request.need)[pool]
            reason = POOL_UNKNOWN if size is None else POOL_CAPACITY
            error = self._impossible(pool, asked, size)
            try:
                await self._status.write(
                    lease, self._status.final(lease, REJECTED, reason, str(error))
                )
            except (NotFound, Conflict):
                continue
            self._metrics.outcomes.labels("rejected").inc()
            self._recorder.event(lease, WARNING, "LeaseRejected", str(error), kind=MACHINELEASE)
        return wait_s

    def _impossible(self, pool: str, asked: int, size: int | None) -> ReservationError:
        if size is None:
            return PoolUnknownError(pool, self._listers.dedicated_pool(pool))
        growth = self._listers.queue.pools[pool].growth
        return PoolCapacityError(pool, asked, size, growth.limit if growth is not None else "")
