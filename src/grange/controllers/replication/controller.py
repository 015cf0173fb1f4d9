"""The replication controller: its parts, and its background tasks.

Reconciles are triggered by events (``event_handlers``), by what becomes due (a pod that becomes available, a
delayed replacement), by retries of failures, and by a slow resync. ``reconciler`` describes a reconcile.
"""

from dataclasses import replace

from grange.base.backoff import Exponential
from grange.base.tasks import Nursery
from grange.controllers.replication import node_eligibility
from grange.controllers.replication.config import ReplicationConfig
from grange.controllers.replication.event_handlers import ReplicationEventHandlers
from grange.controllers.replication.lease_tolerations import LeaseTolerations
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.machine_pool_scheduler import (
    MachineCollector,
    MachinePoolScheduler,
)
from grange.controllers.replication.reconciler import Reconciler
from grange.controllers.replication.state import ReplicationState
from grange.reconcile.controller import Controller
from grange.reconcile.deps import Deps
from grange.reconcile.held_leases import HeldLeases
from grange.reconcile.machine_pool import MachinePool
from grange.reconcile.recorder import Recorder
from grange.reconcile.workqueue import rate_limited_queue

NAME = "replication"

_RETRY = Exponential(
    initial_s=0.02, cap_s=60.0
)  # client-go's cap of 17 minutes is too long for users


class ReplicationService:
    """Keeps the pods of every ReplicationController; ``run`` it once per process.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
        pool: provides machines to controllers whose pods have to move; none by default.
    """

    def __init__(
        self,
        deps: Deps,
        config: ReplicationConfig | None = None,
        pool: MachinePool | None = None,
    ) -> None:
        self._config = config = config or ReplicationConfig()
        self._clock = deps.clock
        self._rng = deps.rng.fork(NAME)
        self._log = deps.log.bind(controller=NAME)
        self._recorder = Recorder(
            deps.client,
            "replication-controller",
            clock=deps.clock,
            rng=self._rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._listers = Listers(deps.informers)
        selector = node_eligibility.NodeSelectorScheduler(lambda: self._listers.nodes.store)
        self._scheduler: node_eligibility.NodeScheduler = selector
        self._collector: MachineCollector | None = None
        leased = LeaseTolerations()
        if pool is not None:
            leased = LeaseTolerations(HeldLeases(deps.informers))
            self._scheduler = pooled = MachinePoolScheduler(selector, pool, deps.clock, leased)
            self._collector = MachineCollector(pooled, deps.client, clock=deps.clock, log=self._log)
        state = ReplicationState(config, clock=deps.clock)
        self._reconciler = Reconciler(
            replace(deps, log=self._log),
            self._listers,
            state,
            scheduler=self._scheduler,
            leased=leased,
            recorder=self._recorder,
            burst=config.burst,
        )
        self.loop = Controller(
            NAME,
            self._reconciler.reconcile,
            queue=rate_limited_queue(deps.clock, _RETRY),
            workers=config.workers,
            clock=deps.clock,
            rng=self._rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._handlers = ReplicationEventHandlers(
            self._listers, state, self.loop, selector=selector, clock=deps.clock
        )

    async def run(self) -> None:
        """Run until cancelled; starts when the listers are synced."""
        await self._listers.wait_synced()
        async with Nursery(NAME) as nursery:
            nursery.start(self._recorder.run(), name="replication events")
            nursery.start(self._handlers.watch_nodes(self._scheduler), name="replication nodes")
            nursery.start(self._resync(), name="replication resync")
            if self._collector is not None:
                every_s = self._config.pool_sweep_s
                sweeps = self._collector.run(self._rng, every_s, self._listers.uids)
                nursery.start(sweeps, name="replication machine collector")
            nursery.start(self.loop.run(), name="replication loop")

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._config.resync_s)
            for controller in self._listers.controllers.store.list():
                delay_s = self._rng.uniform(0.0, self._config.resync_s / 10)
                self.loop.enqueue_after(controller.key, delay_s)
