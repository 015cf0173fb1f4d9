"""The scheduler as a service: informers in, bindings and conditions out.

One task decides, in short slices so that the loop stays responsive; binders write what was decided;
writers tell pods why they wait. All of them are children of one nursery. Everything that decides is
synchronous and lives in ``cycle``; here is only waiting, writing and what follows from an answer.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from grange.api.kinds import NAMESPACE, NODE, POD
from grange.api.kinds.namespace import Namespace
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder
from grange.scheduler import plugins
from grange.scheduler.binder import Binder, Outcome
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Cycle, Dropped, Placed, Unplaced
from grange.scheduler.errors import CacheCorrupted, CacheError
from grange.scheduler.framework import Profile
from grange.scheduler.handlers import Handlers
from grange.scheduler.metrics import instruments
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.pools import QueueStatistics
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.reporter import SCHEDULER_ERROR, SCHEDULING_GATED, UNSCHEDULABLE, Reporter

__all__ = ["Scheduler", "SchedulerConfig"]

_SWEEP_S = 1.0


class Scheduler:
    """Gives nodes to pods.

    Args:
        deps: the tools.
        config: settings.
        profile: the plugins; the default ones unless said otherwise.
    """

    def __init__(
        self, deps: Deps, config: SchedulerConfig | None = None, *, profile: Profile | None = None
    ) -> None:
        self._config = config or SchedulerConfig()
        self._profile = profile or Profile(plugins.DEFAULT)
        self._clock = deps.clock
        self._log = deps.log.bind(component="scheduler")
        self._metrics = instruments(deps.metrics)
        attempts, bindings = self._metrics.attempts, self._metrics.bindings
        self._attempts = {
            result: attempts.labels(result) for result in ("scheduled", "unschedulable", "error")
        }
        self._outcomes = {outcome: bindings.labels(outcome.value) for outcome in Outcome}
        self._namespaces = deps.informers.informer(NAMESPACE)
        self._nodes = deps.informers.informer(NODE)
        self._pods = deps.informers.informer(POD)
        self.cache = Cache(ttl_s=self._config.assume_ttl_s)
        self.queue = SchedulingQueue(self._profile, self._config.queue)
        self.cycle = Cycle(self._profile, self.cache, self.queue)
        self._handlers = Handlers(
            self._profile,
            self.cache,
            self.queue,
            self._config.scheduler_names,
            now=self._clock.monotonic,
            log=self._log,
        )
        self._recorder = Recorder(
            deps.client,
            "default-scheduler",
            clock=deps.clock,
            rng=deps.rng,
            log=self._log,
            metrics=deps.metrics,
        )
        self._reporter = Reporter(deps.client, self._recorder, clock=deps.clock, log=self._log)
        self._binder = Binder(
            deps.client, self._profile.bind, self.cache, clock=deps.clock, log=self._log
        )
        self._placed: deque[Placed] = deque()  # decided, not yet with a binder
        self._binding: dict[str, Placed] = {}  # decided, outcome not yet known
        self._wake = asyncio.Event()  # there may be something to decide
        self._listening = False
        self._nursery: Nursery | None = None
        self._binders = 0

    async def run(self) -> None:
        """Schedule until cancelled. Bindings that are under way then have an unknown outcome."""
        self._listen()
        await self._namespaces.synced.wait()
        await self._nodes.synced.wait()
        await self._pods.synced.wait()
        self._log.info("scheduling", nodes=len(self._nodes.store), waiting=len(self.queue))
        async with Nursery("scheduler") as nursery:
            nursery.start(self._recorder.run(), name="scheduler recorder")
            for number in range(self._config.writers):
                nursery.start(self._reporter.run(), name=f"scheduler writer {number}")
            if self._config.assume_ttl_s:
                nursery.start(self._sweep(), name="scheduler sweep")
            self._nursery, self._binders = nursery, 0
            await self._decide()

    def statistics(self) -> QueueStatistics:
        """How many pods wait where."""
        return self.queue.statistics()

    def engine_decisions(self) -> int:
        """How many decisions were made since the start."""
        return self.cycle.engine.statistics.decisions

    # --- informers ---------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._listening:
            # Started again after a crash: what we hold may be the reason, what was in flight is
            # nowhere, and of bindings that were under way nobody knows the outcome.
            self.queue.clear()
            self._rebuild()
            self._placed.clear()
            self._placed.extend(self._binding.values())
            return
        self._listening = True
        self._namespaces.add_handler(
            self._on_namespace, self._on_namespace_update, self._handlers.namespace_deleted
        )
        self._nodes.add_handler(self._on_node_add, self._on_node_update, self._on_node_delete)
        self._pods.add_handler(self._on_pod_add, self._on_pod_update, self._on_pod_delete)

    def _on_namespace(self, namespace: Namespace) -> None:
        self._handlers.namespace_seen(namespace)
        self._wake.set()

    def _on_namespace_update(self, _: Namespace, namespace: Namespace) -> None:
        self._on_namespace(namespace)

    def _on_node_add(self, node: Node) -> None:
        self._handlers.node_added(node)
        self._wake.set()

    def _on_node_update(self, old: Node, new: Node) -> None:
        self._handlers.node_updated(old, new)
        self._wake.set()

    def _on_node_delete(self, node: Node) -> None:
        self._handlers.node_deleted(node)
        self._wake.set()

    def _on_pod_add(self, pod: Pod) -> None:
        self._take_in(pod, self._handlers.pod_added, pod)
        self._tell_gate(pod)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        self._take_in(new, self._handlers.pod_updated, old, new)
        if new.spec.node_name:
            self._reporter.forget(new.metadata.uid)
        else:
            self._tell_gate(new)

    def _on_pod_delete(self, pod: Pod) -> None:
        self._reporter.forget(pod.metadata.uid)
        self._take_in(pod, self._handlers.pod_deleted, pod)

    def _take_in(self, pod: Pod, handler: Callable[..., None], *objects: Pod) -> None:
        try:
            handler(*objects)
        except (CacheCorrupted, CacheError) as error:
            self._log.error("cache contradicts the cluster", pod=str(pod.key), error=error)
            self._rebuild()
        self._wake.set()

    def _tell_gate(self, pod: Pod) -> None:
        gates = [gate.get("name", "") for gate in pod.spec.scheduling_gates]
        if gates and pod.metadata.uid in self.queue:
            message = f"Scheduling is blocked by gates: {', '.join(gates)}"
            self._reporter.unschedulable(pod, message, reason=SCHEDULING_GATED)

    def _rebuild(self) -> None:
        """Build the cache anew from what the informers hold and from what is being bound."""
        self.cache.clear()
        for node in self._nodes.store.list():
            self._handlers.node_added(node)
        for pod in self._pods.store.list():
            if pod.spec.node_name:
                self._handlers.pod_added(pod)
        for placed in self._binding.values():
            if not self.cache.tracks(placed.info.uid):
                self.cache.assume_pod(placed.info)
        for pod in self._pods.store.list():
            if not pod.spec.node_name:
                self._handlers.pod_added(pod)

    # --- deciding ----------------------------------------------------------------------------

    async def _decide(self) -> None:
        while True:
            now = self._clock.monotonic()
            self.queue.flush(now)
            idle = self._decide_slice(now)
            self._hire()
            if idle:
                await self._wait()
            else:
                await self._clock.sleep(0)

    def _decide_slice(self, now: float) -> bool:
        """Decide for a while; True when there is nothing left to do now."""
        limit = now + self._config.slice_s
        for _ in range(self._config.slice_pods):
            if len(self._placed) >= self._config.backlog:
                return True  # a binder wakes us
            outcome = self.cycle.run_one(now)
            if outcome is None:
                return True
            self._follow(outcome)
            now = self._clock.monotonic()
            if now >= limit:
                return False
        return False

    def _follow(self, outcome: Placed | Unplaced | Dropped) -> None:
        match outcome:
            case Placed():
                self._attempts["scheduled"].inc()
                self._binding[outcome.info.uid] = outcome
                self._placed.append(outcome)
            case Unplaced(queued, rejection):
                result = "error" if rejection.error else "unschedulable"
                self._attempts[result].inc()
                reason = SCHEDULER_ERROR if rejection.error else UNSCHEDULABLE
                self._reporter.unschedulable(queued.info.pod, rejection.message, reason=reason)
            case Dropped():
                pass

    async def _wait(self) -> None:
        """Until an event, or until the queue has something to do by itself."""
        statistics = self.queue.statistics()
        self._metrics.pending.labels("active").set(statistics.active)
        self._metrics.pending.labels("backoff").set(statistics.backoff)
        self._metrics.pending.labels("unschedulable").set(statistics.unschedulable)
        self._wake.clear()
        wait_s: float | None = None
        if len(self._placed) < self._config.backlog:
            now = self._clock.monotonic()
            deadline = self.queue.next_deadline(now)
            if deadline is not None:
                wait_s = deadline - now
                if wait_s <= 0:
                    return
        try:
            async with self._clock.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            for pod in self.cache.cleanup(self._clock.monotonic()):
                self._log.warning("assumption expired", pod=str(pod.key), node=pod.spec.node_name)
                self._requeue(pod, None)

    # --- binding -----------------------------------------------------------------------------

    def _hire(self) -> None:
        """As many binders as there is work for; they leave when it is done."""
        wanted = min(self._config.binders, self._binders + len(self._placed))
        while self._nursery is not None and self._binders < wanted:
            self._binders += 1
            self._nursery.start(self._bind_placed(), name="scheduler binder")

    async def _bind_placed(self) -> None:
        while self._placed:
            placed = self._placed.popleft()
            if len(self._placed) == self._config.backlog - 1:
                self._wake.set()
            if self.cache.is_assumed_pod(placed.info.pod):
                self._settle(placed, await self._binder.bind(placed))
            else:
                self._settle(placed, Outcome.SETTLED)
        self._binders -= 1

    def _settle(self, placed: Placed, outcome: Outcome) -> None:
        """What follows from how a binding ended."""
        self._binding.pop(placed.info.uid, None)
        self._outcomes[outcome].inc()
        now = self._clock.monotonic()
        if outcome is Outcome.BOUND:
            self.cache.finish_binding(placed.info.pod, now)
            self._metrics.seconds.observe(now - placed.queued.first_queued)
            self._reporter.scheduled(placed.info.pod, placed.node_name)
            return
        if not self.cache.is_assumed_pod(placed.info.pod):
            return  # the informer has told what became of it
        self.cycle.take_back(placed)
        self.queue.move(ASSIGNED_POD_DELETE, now, placed.info.pod, None)
        if outcome is not Outcome.GONE:
            self._requeue(placed.info.pod, placed)
        self._wake.set()

    def _requeue(self, pod: Pod, placed: Placed | None) -> None:
        """Queue a pod whose assumption was taken back, if it still waits for a node."""
        live = self._pods.store.get(pod.key)
        if live is None or live.metadata.uid != pod.metadata.uid or live.spec.node_name:
            return
        info = PodInfo.of(live)
        self._profile.sign(info)
        queued = placed.queued if placed is not None else None
        self.queue.take_back(info, self._clock.monotonic(), tried=queued)
        self._wake.set()
