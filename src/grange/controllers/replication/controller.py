"""The replication controller: its parts, its background tasks and its event handlers.

Reconciles are triggered by events, by what becomes due (a pod that becomes available, a delayed replacement), by
retries of failures, and by a slow resync. ``reconciler`` describes a reconcile.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.api.selectors import SelectorError
from grange.base.backoff import Exponential
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.controllers.replication import node_eligibility, pod_control
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.node_eligibility import MachineCollector, NodeScheduler
from grange.controllers.replication.podtemplate import LeaseTolerations
from grange.controllers.replication.reconciler import Reconciler
from grange.controllers.replication.state import PodBackoff, ReplicationState
from grange.controllers.shared.pod_identity import controller_key
from grange.reconcile.controller import Controller
from grange.reconcile.deps import Deps
from grange.reconcile.held_leases import HeldLeases
from grange.reconcile.machine_pool import MachinePool
from grange.reconcile.recorder import Recorder
from grange.reconcile.workqueue import rate_limited_queue
from grange.reconcile.write_tracker import is_only_annotated

NAME = "replication"

_RETRY = Exponential(
    initial_s=0.02, cap_s=60.0
)  # client-go's cap of 17 minutes is too long for users
_SETTLE_S = 0.02  # nodes change in bursts; one pass over the controllers serves many changes
_SETTLE_SHARE = 10  # passes over the controllers take at most a tenth of the time


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """How the controller works.

    Attributes:
        workers: controllers reconciled at the same time.
        burst: most pods created or deleted in one reconcile; the next one follows at once.
        resync_s: every controller is reconciled again after so many seconds, also without events.
        replacement: delay before a finished pod is replaced, by how often pods of the controller finished in a
            row; the finished pod is kept for inspection meanwhile.
        replacement_reset_s: seconds without a finished pod after which the delay is reset.
        pool_sweep_s: seconds between two sweeps for machines whose holders are gone.
    """

    workers: int = 4
    burst: int = 500
    resync_s: float = 300.0
    replacement: Exponential = field(default_factory=lambda: Exponential(initial_s=1.0, cap_s=60.0))
    replacement_reset_s: float = 600.0
    pool_sweep_s: float = 300.0


class ReplicationService:
    """Keeps the pods of every ReplicationController; ``run`` it once per process.

    A pool provides machines to controllers whose pods have to move.
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
        leased = LeaseTolerations(None if pool is None else HeldLeases(deps.informers))
        self._scheduler = NodeScheduler(
            self._listers.nodes.store, pool, clock=deps.clock, leased=leased
        )
        self._collector: MachineCollector | None = None
        if pool is not None:
            self._collector = MachineCollector(self._scheduler, deps.client, log=self._log)
        replacements = PodBackoff(config.replacement, config.replacement_reset_s)
        self._state = ReplicationState(replacements, clock=deps.clock)
        self._reconciler = Reconciler(
            replace(deps, log=self._log),
            self._listers,
            self._state,
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
        self._nodes_changed = asyncio.Event()
        self._listers.controllers.add_handler(
            self._controller_added, self._controller_changed, self._controller_gone
        )
        self._state.readiness.watch(self._listers.pods)
        self._listers.pods.add_handler(self._pod_added, self._pod_changed, self._pod_gone)
        self._listers.disruption_budgets.add_handler(
            self._budget_changed, lambda _, new: self._budget_changed(new), self._budget_changed
        )
        self._listers.nodes.add_handler(self._node_changed, self._node_updated, self._node_changed)

    async def run(self) -> None:
        """Run until cancelled; starts when the listers are synced."""
        await self._listers.wait_synced()
        async with Nursery(NAME) as nursery:
            nursery.start(self._recorder.run(), name="replication events")
            nursery.start(self._watch_nodes(), name="replication nodes")
            nursery.start(self._resync(), name="replication resync")
            if self._collector is not None:
                collecting = self._collect_machines(self._collector)
                nursery.start(collecting, name="replication machine collector")
            nursery.start(self.loop.run(), name="replication loop")

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._config.resync_s)
            for controller in self._listers.controllers.store.list():
                delay_s = self._rng.uniform(0.0, self._config.resync_s / 10)
                self.loop.enqueue_after(controller.key, delay_s)

    async def _collect_machines(self, collector: MachineCollector) -> None:
        while True:
            await self._clock.sleep(self._rng.uniform(0.9, 1.1) * self._config.pool_sweep_s)
            with suppress(GrangeError):  # the next sweep tries again
                present = self._listers.controllers.store.list()
                await collector.sweep({one.metadata.uid for one in present})

    async def _watch_nodes(self) -> None:
        """Enqueue the controllers whose eligible nodes have changed since they last acted on them."""
        while True:
            await self._nodes_changed.wait()
            self._nodes_changed.clear()
            started = self._clock.monotonic()
            with suppress(GrangeError):  # every reconcile reports it and tries again
                self._enqueue_changed(await self._scheduler.eligible_nodes())
            took_s = self._clock.monotonic() - started
            await self._clock.sleep(max(_SETTLE_S, took_s * _SETTLE_SHARE))

    def _enqueue_changed(self, nodes: node_eligibility.EligibleNodes) -> None:
        for controller in self._listers.controllers.store.list():
            try:
                eligible = node_eligibility.places(nodes, controller)
            except (SelectorError, msgspec.ValidationError):
                continue  # its own reconcile reports it
            if eligible != self._state.eligible.get(controller.metadata.uid):
                self.loop.enqueue(controller.key)

    # --- controllers --------------------------------------------------------------------------

    def _controller_added(self, controller: ReplicationController) -> None:
        self.loop.enqueue(controller.key)

    def _controller_changed(self, old: ReplicationController, new: ReplicationController) -> None:
        if old.metadata.generation != new.metadata.generation:
            self.loop.queue.forget(new.key)  # a new spec deserves a prompt first attempt
        if _facts(old) != _facts(new) or self._state.written.awaited(new.metadata.uid):
            self.loop.enqueue(new.key)

    def _controller_gone(self, controller: ReplicationController) -> None:
        self._state.forget(controller.metadata.uid)

    # --- pods ---------------------------------------------------------------------------------

    def _pod_added(self, pod: Pod) -> None:
        owner = controller_key(pod)
        if owner is not None:
            key, uid = owner
            if pod.metadata.deletion_timestamp:
                self._state.expectations.deletion_observed(uid, pod.metadata.uid)
            self._state.expectations.creation_observed(uid, pod.metadata.name)
            self._enqueue_owner(key, uid)
        else:
            self._enqueue_adopters(pod)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        before, owner = controller_key(old), controller_key(new)
        if before is not None and before != owner:
            self._enqueue_owner(*before)
        if owner is None:
            self._enqueue_adopters(new)
            return
        if new.metadata.deletion_timestamp:
            self._state.expectations.deletion_observed(owner[1], new.metadata.uid)
        note = pod_control.REVOKED_ANNOTATION
        if before == owner and is_only_annotated(old, new, note):
            return
        self._enqueue_owner(*owner)

    def _pod_gone(self, pod: Pod) -> None:
        owner = controller_key(pod)
        if owner is not None:
            self._state.expectations.deletion_observed(owner[1], pod.metadata.uid)
            self._enqueue_owner(*owner)

    def _enqueue_owner(self, key: ObjectKey, uid: str) -> None:
        controller = self._listers.controllers.store.get(key)
        if controller is not None and controller.metadata.uid == uid:
            self.loop.enqueue(key)

    def _enqueue_adopters(self, pod: Pod) -> None:
        for controller in self._listers.adopters(pod):
            self.loop.enqueue(controller.key)

    def _budget_changed(self, budget: PodDisruptionBudget) -> None:
        for key in [*self._state.kept_by_budget.values()]:
            if key.namespace == budget.metadata.namespace:
                self.loop.enqueue(key)

    # --- nodes --------------------------------------------------------------------------------

    def _node_updated(self, old: Node, new: Node) -> None:
        if node_eligibility.placement_facts(old) != node_eligibility.placement_facts(new):
            self._node_changed(new)

    def _node_changed(self, node: Node) -> None:
        self._scheduler.nodes_changed()
        self._nodes_changed.set()
        for pod in self._listers.on_node(node.metadata.name):
            if (owner := controller_key(pod)) is not None:
                self._enqueue_owner(*owner)


def _facts(controller: ReplicationController) -> tuple[object, ...]:
    """What a reconcile depends on, besides pods and nodes.

    Not the status: every failed reconcile writes to it what it was about to do, and that must not cause the
    next one before its backoff has passed.
    """
    meta = controller.metadata
    return meta.generation, meta.labels, meta.annotations, meta.deletion_timestamp
