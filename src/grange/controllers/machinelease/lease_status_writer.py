"""What the controller writes about leases: positions and reasons of those that wait, and their ends."""

import asyncio

import msgspec

from grange.api import conditions, timestamps
from grange.api.kinds import MACHINELEASE
from grange.api.kinds.machinelease import MACHINES_REQUESTED, QUEUED, MachineLease
from grange.api.meta import Document, preconditions
from grange.api.status import ApiError
from grange.base.log import Logger
from grange.controllers.machinelease import logic
from grange.controllers.machinelease.config import MachineLeaseConfig
from grange.controllers.machinelease.lease_listers import LeaseListers
from grange.controllers.machinelease.metrics import instruments
from grange.placement.lease_outlook import LeaseOutlook, outlooks
from grange.reconcile.deps import Deps


class LeaseStatusWriter:
    """Writes statuses; ``run`` it to keep those of waiting leases up to date.

    Args:
        deps: client, clock, metrics.
        config: how often, and how much at once.
        listers: leases and their queue.
        log: the logger.
    """

    def __init__(
        self, deps: Deps, config: MachineLeaseConfig, listers: LeaseListers, log: Logger
    ) -> None:
        self._client, self._clock = deps.client, deps.clock
        self._config, self._listers, self._log = config, listers, log
        self._metrics = instruments(deps.metrics)
        self._stale = asyncio.Event()

    def queue_changed(self) -> None:
        """Look at the waiting leases again."""
        self._stale.set()

    async def run(self) -> None:
        """Write positions and reasons of waiting leases, and count all, not too often."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._count()
            written, now = 0, self._clock.now().timestamp()
            growing = self._listers.queue.growing(now)
            for outlook in list(outlooks(self._listers.queue, now)):
                grows = outlook.request.uid in growing
                lease = self._listers.lease_of(outlook.request.uid)
                if (
                    lease is None
                    or not logic.is_waiting(lease)
                    or lease.metadata.uid in self._listers.claiming
                    or not outlook.reason
                    or not logic.is_worth_writing(lease, outlook, grows=grows)
                ):
                    continue
                if written >= self._config.status_writes:
                    self._stale.set()
                    break
                written += 1
                await self._show(lease, outlook, grows=grows)
            await self._clock.sleep(self._config.refresh_s)

    async def _show(self, lease: MachineLease, outlook: LeaseOutlook, *, grows: bool) -> None:
        start, found = outlook.expected_start, lease.status.conditions
        verdicts = {"Granted": ("False", outlook.reason, outlook.message)}
        if grows or conditions.find(found, MACHINES_REQUESTED) is not None:
            verdicts[MACHINES_REQUESTED] = logic.growth_verdict(lease, grows=grows)
        for kind, verdict in verdicts.items():
            found = conditions.set_status(
                found,
                kind,
                verdict,
                generation=lease.metadata.generation,
                now=self._clock.now(),
            )
        status: Document = {
            "phase": QUEUED,
            "position": outlook.position,
            "reason": outlook.reason,
            "message": outlook.message,
            "expectedStart": (
                timestamps.rfc3339(timestamps.from_seconds(start)) if start is not None else None
            ),
            "conditions": msgspec.to_builtins(found),
        }
        try:
            await self.write(lease, status)
        except ApiError as error:
            self._stale.set()
            self._log.info("status not written", lease=lease.key, error=error)

    def final(self, lease: MachineLease, phase: str, reason: str, message: str) -> Document:
        """The status of a lease that has ended without machines."""
        found = conditions.set_status(
            lease.status.conditions,
            "Granted",
            ("False", reason, message),
            generation=lease.metadata.generation,
            now=self._clock.now(),
        )
        return {
            "phase": phase,
            "position": 0,
            "reason": reason,
            "message": message,
            "expectedStart": None,
            "conditions": msgspec.to_builtins(found),
        }

    async def write(self, lease: MachineLease, status: Document) -> MachineLease:
        """Write part of a status, if the lease is as it was read.

        Raises:
            ApiError: it changed, or is gone, or the request failed.
        """
        meta = lease.metadata
        patch = {
            "metadata": preconditions(meta),
            "status": {"observedGeneration": meta.generation, **status},
        }
        written = await self._client.patch(
            MACHINELEASE, meta.name, meta.namespace, patch=patch, subresource="status"
        )
        self._listers.wrote_lease(written)
        return written

    def _count(self) -> None:
        self._metrics.waiting.clear()
        for pool, length in self._listers.queue.queue_length().items():
            self._metrics.waiting.labels(pool).set(length)
        self._metrics.machines.clear()
        for (pool, state), number in self._listers.table.states().items():
            self._metrics.machines.labels(pool, state).set(number)
