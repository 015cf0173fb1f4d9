"""The scheduler as a service: informers in, bindings and conditions out.

One task decides, in short slices so that the loop stays responsive; binders write what was decided;
writers tell pods why they wait. All of them are children of one nursery. Everything that decides is
synchronous and lives in ``cycle``; here is only waiting, writing and what follows from an answer.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from grange.api.explanation import Explanation
from grange.api.kinds import NAMESPACE, NODE, POD, PODDISRUPTIONBUDGET, PODGROUP, QUEUE, SERVICE
from grange.api.kinds.namespace import Namespace
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.podgroup import PodGroup
from grange.api.kinds.queue import Queue
from grange.api.kinds.service import Service
from grange.api.quantity import QuantityError
from grange.base.errors import InvariantError
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder
from grange.scheduler import plugins
from grange.scheduler.binder import Binder, Limits, Outcome
from grange.scheduler.cache import Cache
from grange.scheduler.catchup import catch_up
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import (
    Batch,
    Cycle,
    Dropped,
    Outcome as Decision,
    Placed,
    Unplaced,
    Waiting,
)
from grange.scheduler.decision import Rejection
from grange.scheduler.errors import CacheCorrupted, CacheError, NotAtWork
from grange.scheduler.framework import PostFilterResult, Profile, Profiles
from grange.scheduler.gangs.status import StatusWriter
from grange.scheduler.gangs.units import GANG, HELD_BACK, QUOTA, GangUnits
from grange.scheduler.handlers import Handlers
from grange.scheduler.metrics import instruments
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.pools import QueueStatistics
from grange.scheduler.preemption.budgets import Budgets
from grange.scheduler.preemption.evictor import Evictor
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.reporter import SCHEDULER_ERROR, SCHEDULING_GATED, UNSCHEDULABLE, Reporter
from grange.scheduler.why.explainer import Explainer
from grange.scheduler.why.history import History

__all__ = ["Scheduler", "SchedulerConfig"]

_SWEEP_S = 1.0
_BROKEN_MAX = 32  # pods in a row whose cycles meet a bug, before all starts anew


class Scheduler:
    """Gives nodes to pods.

    Args:
        deps: the tools.
        config: settings.
        profile: the plugins, perhaps several sets; the default ones unless said otherwise.
    """

    def __init__(
        self, deps: Deps, config: SchedulerConfig | None = None, *, profile: Profiles | None = None
    ) -> None:
        self._config = config or SchedulerConfig()
        self._profile: Profiles = profile or Profile(plugins.DEFAULT)
        self._clock = deps.clock
        self._client = deps.client
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
        self._services = deps.informers.informer(SERVICE)
        self._groups = deps.informers.informer(PODGROUP)
        self._quotas = deps.informers.informer(QUEUE)
        self.cache = Cache(ttl_s=self._config.assume_ttl_s)
        self.queue = SchedulingQueue(self._profile, self._config.queue)
        self._budgets = Budgets()
        self._disruptions = deps.informers.informer(PODDISRUPTIONBUDGET)
        luck = deps.rng.fork("preemption")
        self.cycle = Cycle(
            self._profile,
            self.cache,
            self.queue,
            budgets=self._budgets,
            offset=lambda nodes: luck.integer(0, nodes - 1),
        )
        self._handlers = Handlers(
            self._profile,
            self.cache,
            self.queue,
            self._config.scheduler_names,
            now=self._clock.monotonic,
            log=self._log,
            nominator=self.cycle.nominator,
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
        self._evictor = Evictor(
            deps.client,
            self._recorder,
            self.cycle.nominator,
            activate=self._activate,
            clock=deps.clock,
            log=self._log,
        )
        config = self._config
        self._binder = Binder(
            deps.client,
            self._profile.bind,
            self.cache,
            self._settle,
            limits=Limits(config.binders, config.binding_group, config.backlog),
            clock=deps.clock,
            log=self._log,
        )
        self._status = StatusWriter(
            deps.client,
            self._recorder,
            self._groups.store.get,
            self._quotas.store.get,
            clock=deps.clock,
            log=self._log,
        )
        self.gangs = GangUnits(
            self._profile,
            self.cycle,
            self.cache,
            self.queue,
            overtakes=config.overtakes,
            changed=self._status.changed,
        )
        self.cycle.units = self.gangs
        self.gangs.unpromised = self._evictor.withdraw
        self._handlers.snapshot = self.cycle.snapshot
        self._handlers.dress = self.gangs.news.node_seen
        self._history = History()
        self._explainer = Explainer(
            self._profile_for,
            self.cache,
            self.queue,
            self.cycle.snapshot,
            self._history,
            clock=deps.clock,
            nominator=self.cycle.nominator,
            waits_for=self._waits_for,
        )
        self._wake = asyncio.Event()  # there may be something to decide
        self._decided = 0  # of the running slice, not counted yet
        self._broken: dict[str, None] = {}  # pods whose cycles met a bug, with no other in between
        self._broken_at = 0  # decisions, when the last of them did
        self._listening = False
        self._running = False

    async def run(self) -> None:
        """Schedule until cancelled.

        Bindings that are under way then have an unknown outcome. To be run again after that is to
        have another turn, with others' in between perhaps: nothing of the last one holds.
        """
        fresh = not self._pods.synced.is_set()  # what it lists from now on is the newest
        try:
            await self._run(fresh=fresh)
        except asyncio.CancelledError:
            self._binder.forget_all()
            raise

    async def _run(self, *, fresh: bool) -> None:
        self._listen()
        await self._namespaces.synced.wait()
        await self._services.synced.wait()
        await self._nodes.synced.wait()
        await self._pods.synced.wait()
        await self._groups.synced.wait()
        await self._quotas.synced.wait()
        await self._disruptions.synced.wait()
        if not fresh:
            await catch_up(self._client, self._pods, clock=self._clock, log=self._log)
        self._log.info("scheduling", nodes=len(self._nodes.store), waiting=len(self.queue))
        async with Nursery("scheduler") as nursery:
            nursery.start(self._recorder.run(), name="scheduler recorder")
            for number in range(self._config.writers):
                nursery.start(self._reporter.run(), name=f"scheduler writer {number}")
            if self._config.assume_ttl_s:
                nursery.start(self._sweep(), name="scheduler sweep")
            nursery.start(self._status.run(self.gangs), name="scheduler status")
            self._binder.start(nursery)
            self._evictor.start(nursery)
            self._running = True
            try:
                await self._decide()
            finally:
                self._running = False

    def statistics(self) -> QueueStatistics:
        """How many pods wait where."""
        return self.queue.statistics()

    def engine_decisions(self) -> int:
        """How many decisions were made since the start."""
        return self.cycle.decisions

    @property
    def names(self) -> frozenset[str]:
        """The ``schedulerName``s whose pods are ours."""
        return self._config.scheduler_names

    def explain(self, pod: Pod) -> Explanation | None:
        """Why a pod is where it is, or why it still waits; None for a pod that is not ours.

        Synchronous, and short enough to run between two decisions.

        Raises:
            NotAtWork: it does not run, or not yet: another process may do its work.
            SnapshotInconsistent: the books are being put right; ask again.
        """
        if not self._running:
            raise NotAtWork("it does not run in this process now; another one may do its work")
        return self._explainer.explain(pod)

    def _waits_for(self, pod: Pod) -> str:
        """What a pod waits for that no plugin knows of: its gang, its queue, a permission."""
        uid = pod.metadata.uid
        gang = self.gangs.book.member(pod)
        if gang is not None and gang.message and not gang.started:
            return f"its gang {gang.key} ({gang.message})"
        if uid in self.cycle.permits:
            return "a permission to be bound"
        queued = self.queue.find(uid)
        if gang is not None and queued is not None and GANG in queued.rejectors:
            return HELD_BACK.removeprefix("waits for ")
        if queued is not None and QUOTA in queued.rejectors:
            told = [item.rejection.message for item in self._history.of(uid) if item.rejection]
            return f"its queue ({told[-1]})" if told else "its queue"
        return ""

    def _profile_for(self, scheduler_name: str) -> Profile | None:
        ours = scheduler_name in self._config.scheduler_names
        return self._profile.named(scheduler_name) if ours else None

    # --- informers ---------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._listening:
            # Started again after a crash: what we hold may be the reason, and what was in flight
            # is nowhere.
            self.queue.clear()
            for placed in self.cycle.permits.held():
                self.cycle.take_back(placed)
            self.cycle.permits.clear()
            self.cycle.nominator.clear()
            self._rebuild()
            return
        self.cycle.permits.changed = self._wake.set
        self._listening = True
        self._disruptions.add_handler(
            self._budgets.seen, lambda _, new: self._budgets.seen(new), self._budgets.gone
        )
        self._groups.add_handler(self._on_group, self._on_group_update, self._on_group_delete)
        self._quotas.add_handler(self._on_queue, self._on_queue_update, self._on_queue_delete)
        self._namespaces.add_handler(
            self._on_namespace, self._on_namespace_update, self._handlers.namespace_deleted
        )
        self._services.add_handler(
            self._handlers.service_seen, self._on_service_update, self._handlers.service_deleted
        )
        self._nodes.add_handler(self._on_node_add, self._on_node_update, self._on_node_delete)
        self._pods.add_handler(self._on_pod_add, self._on_pod_update, self._on_pod_delete)

    def _on_namespace(self, namespace: Namespace) -> None:
        self._handlers.namespace_seen(namespace)
        self._wake.set()

    def _on_namespace_update(self, _: Namespace, namespace: Namespace) -> None:
        self._on_namespace(namespace)

    def _on_service_update(self, _: Service, service: Service) -> None:
        self._handlers.service_seen(service)

    def _on_node_add(self, node: Node) -> None:
        self._handlers.node_added(node)
        self._wake.set()

    def _on_node_update(self, old: Node, new: Node) -> None:
        self._handlers.node_updated(old, new)
        self._wake.set()

    def _on_node_delete(self, node: Node) -> None:
        self._handlers.node_deleted(node)
        for placed in self.cycle.permits.held():
            if placed.node_name == node.metadata.name:
                self.cycle.permits.reject(placed.uid, "", f"node {placed.node_name} is gone")
        self._wake.set()

    def _on_group(self, group: PodGroup) -> None:
        self.gangs.news.group_seen(group, self._clock.monotonic())
        self._wake.set()

    def _on_group_update(self, _: PodGroup, group: PodGroup) -> None:
        self._on_group(group)

    def _on_group_delete(self, group: PodGroup) -> None:
        self.gangs.news.group_gone(group, self._clock.monotonic())
        self._wake.set()

    def _on_queue(self, queue: Queue) -> None:
        try:
            self.gangs.news.queue_seen(queue)
        except QuantityError as error:  # the server refuses such a queue
            self._log.warning("queue left as it was", queue=queue.metadata.name, error=error)
        self._wake.set()

    def _on_queue_update(self, _: Queue, queue: Queue) -> None:
        self._on_queue(queue)

    def _on_queue_delete(self, queue: Queue) -> None:
        self.gangs.news.queue_gone(queue)
        self._wake.set()

    def _on_pod_add(self, pod: Pod) -> None:
        self.gangs.news.pod_seen(pod, self._clock.monotonic())
        self._take_in(pod, self._handlers.pod_added, pod)
        self._tell_gate(pod)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        self.gangs.news.pod_seen(new, self._clock.monotonic())
        self._take_in(new, self._handlers.pod_updated, old, new)
        if new.spec.node_name:
            self._reporter.forget(new.metadata.uid)
            self.cycle.permits.reject(new.metadata.uid, "", "somebody else bound the pod")
        elif new.metadata.deletion_timestamp or is_finished(new):
            self.cycle.permits.reject(new.metadata.uid, "", "the pod has ended or is being deleted")
        else:
            self._tell_gate(new)

    def _on_pod_delete(self, pod: Pod) -> None:
        self._reporter.forget(pod.metadata.uid)
        self._history.forget(pod.metadata.uid)
        self._take_in(pod, self._handlers.pod_deleted, pod)
        self.gangs.news.pod_gone(pod, self._clock.monotonic())
        self.cycle.permits.reject(pod.metadata.uid, "", "the pod was deleted")

    def _take_in(self, pod: Pod, handler: Callable[..., None], *objects: Pod) -> None:
        try:
            handler(*objects)
        except (CacheCorrupted, CacheError) as error:
            self._log.error("cache contradicts the cluster", pod=str(pod.key), error=error)
            self._rebuild()
        self._wake.set()

    def _tell_gate(self, pod: Pod) -> None:
        if not pod.spec.scheduling_gates:
            return
        gates = [gate.get("name", "") for gate in pod.spec.scheduling_gates]
        if pod.metadata.uid in self.queue:
            message = f"Scheduling is blocked by gates: {', '.join(gates)}"
            self._reporter.unschedulable(pod, message, reason=SCHEDULING_GATED)

    def _rebuild(self) -> None:
        """Build the cache anew from what the informers hold and from what is being bound."""
        self.cache.clear()
        self.gangs.news.clear()
        for pod in self._pods.store.list():
            self.gangs.news.pod_seen(pod, self._clock.monotonic())
        for node in self._nodes.store.list():
            self._handlers.node_added(node)
        for pod in self._pods.store.list():
            if pod.spec.node_name:
                self._handlers.pod_added(pod)
        for placed in (*self._binder.under_way.values(), *self.cycle.permits.held()):
            if not self.cache.tracks(placed.info.uid):
                self.cache.assume_pod(placed.info)
                self.gangs.news.take(placed.info.pod)
        for pod in self._pods.store.list():
            if not pod.spec.node_name:
                self._handlers.pod_added(pod)

    # --- deciding ----------------------------------------------------------------------------

    async def _decide(self) -> None:
        while True:
            now = self._clock.monotonic()
            self.queue.flush(now)
            self._permit(now)
            self.gangs.news.tick(now)
            idle = self._decide_slice(now)
            if self._decided:
                self._attempts["scheduled"].inc(self._decided)
                self._decided = 0
            self._binder.work()
            if idle:
                await self._wait()
            else:
                await self._clock.sleep(0)

    def _decide_slice(self, now: float) -> bool:
        """Decide for a while; True when there is nothing left to do now."""
        limit = now + self._config.slice_s
        for _ in range(self._config.slice_pods):
            if self._binder.full:
                return True  # what follows from an outcome wakes us
            try:
                outcome = self.cycle.run_one(now)
            except (CacheCorrupted, InvariantError):
                raise  # what everybody is decided by is wrong
            except Exception as error:  # a bug that one pod meets costs it a backoff
                outcome = self._contain(error, now)
                if outcome is None:
                    raise
            if outcome is None:
                return True
            self._follow(outcome, now)
            now = self._clock.monotonic()
            if now >= limit:
                return False
        return False

    def _contain(self, error: Exception, now: float) -> Decision | None:
        """Go on without the pod whose try ended in a bug; None when only a new start will do.

        That is so, too, when pod after pod meets one: what they share may be the reason.
        """
        queued = self.queue.in_flight()
        if queued is None:
            return None
        decisions = self.cycle.decisions
        if decisions > self._broken_at + 1:
            self._broken.clear()
        self._broken_at = decisions
        self._broken[queued.uid] = None
        if len(self._broken) > _BROKEN_MAX:
            self._broken.clear()
            return None
        outcome = self.cycle.contain(error, now)
        if outcome is not None:
            pod = str(queued.info.pod.key)
            if queued.errors == 1:
                self._log.crash("bug in a pod's cycle", error, pod=pod)
            else:
                self._log.warning("bug in a pod's cycle again", pod=pod, error=error)
        return outcome

    def _permit(self, now: float) -> None:
        """Go on with the pods that Permit plugins have decided on."""
        permits = self.cycle.permits
        if permits:
            permits.expire(now)
        released = permits.collect_released()
        for placed in released:
            self._follow(placed, now)
        self.gangs.permits_decided(released, now)
        for refused in permits.collect_refused():
            for placed in refused.pods:
                self._give_up(placed, refused.plugin, refused.reason)
            self.gangs.permits_decided(refused.pods, now)

    def _give_up(self, placed: Placed, plugin: str, reason: str) -> None:
        """Take a held pod back, and try again later."""
        now = self._clock.monotonic()
        self.cycle.take_back(placed)
        self.queue.move(ASSIGNED_POD_DELETE, now, placed.info.pod, None)
        if self._requeue(placed.info.pod, placed, rejector=plugin or "Permit"):
            rejection = Rejection(self.cycle.snapshot.num_nodes, pre_filter=reason)
            self._follow(Unplaced(placed.queued, rejection), now)

    def _follow(self, outcome: Decision, now: float) -> None:
        match outcome:
            case Placed():
                self._decided += 1
                uid = outcome.info.uid
                self._history.scheduled(uid, outcome.node_name, outcome.state.score, now)
                self._binder.put(outcome)
            case Waiting():
                pass
            case Unplaced(queued, rejection, room):
                nominated = self.cycle.nominator.node_of(queued.uid)
                if nominated:
                    rejection = replace(rejection, nominated=nominated)
                result = "error" if rejection.error else "unschedulable"
                self._attempts[result].inc()
                self._history.rejected(queued.uid, rejection, now)
                reason = SCHEDULER_ERROR if rejection.error else UNSCHEDULABLE
                self._reporter.unschedulable(queued.info.pod, rejection.message, reason=reason)
                if room is not None:
                    self._evictor.put(queued.info, self._reject_held(queued.info, room))
            case Batch(outcomes):
                for one in outcomes:
                    self._follow(one, now)
            case Dropped():
                pass

    def _reject_held(self, pod: PodInfo, room: PostFilterResult) -> PostFilterResult:
        """Victims that are held run nowhere yet: they lose their place and need not be deleted."""
        permits = self.cycle.permits
        held = [victim.uid for victim in room.victims if victim.uid in permits]
        for uid in held:
            permits.reject(uid, "", f"pod {pod.pod.key} preempts")
        left = tuple(victim for victim in room.victims if victim.uid not in held)
        return replace(room, victims=left)

    async def _wait(self) -> None:
        """Until an event, or until the queue has something to do by itself."""
        statistics = self.queue.statistics()
        self._metrics.pending.labels("active").set(statistics.active)
        self._metrics.pending.labels("backoff").set(statistics.backoff)
        self._metrics.pending.labels("unschedulable").set(statistics.unschedulable)
        self._wake.clear()
        wait_s: float | None = None
        now = self._clock.monotonic()
        deadlines = [self.cycle.permits.next_deadline(), self.gangs.news.next_deadline(now)]
        if not self._binder.full:
            deadlines.append(self.queue.next_deadline(now))
        deadline = min((found for found in deadlines if found is not None), default=None)
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
                self.gangs.news.untake(pod)
                self._requeue(pod, None)

    # --- binding -----------------------------------------------------------------------------

    def _settle(self, group: Sequence[Placed], outcome: Outcome, told: str) -> None:
        """What follows from how bindings ended."""
        self._outcomes[outcome].inc(len(group))
        now = self._clock.monotonic()
        if outcome is Outcome.BOUND:
            if self._config.assume_ttl_s:
                for placed in group:
                    self.cache.finish_binding(placed.info.pod, now)
            self._metrics.seconds.observe([now - placed.queued.first_queued for placed in group])
            self._reporter.scheduled([placed.info.pod for placed in group])
        else:
            for placed in group:
                # If it is not assumed any more, the informer has told what became of it.
                if self.cache.is_assumed_pod(placed.info.pod):
                    self._take_back(placed, now, gone=outcome is Outcome.GONE, told=told)
                elif not self.cache.is_on(placed.uid, placed.node_name):
                    self.cycle.unreserve(placed)
        self._wake.set()  # there is room for more

    def _take_back(self, placed: Placed, now: float, *, gone: bool, told: str) -> None:
        self.cycle.take_back(placed)
        self.queue.move(ASSIGNED_POD_DELETE, now, placed.info.pod, None)
        if not gone and self._requeue(placed.info.pod, placed):
            self.gangs.news.bind_failed(placed.info.pod, placed.queued, now)
            if told:
                why = f"the binding to {placed.node_name} was refused: {told}"
                rejection = Rejection(1, waits=why, error=True)
                self._history.rejected(placed.uid, rejection, now)
                self._reporter.unschedulable(placed.queued.info.pod, why, reason=SCHEDULER_ERROR)

    def _activate(self, uid: str) -> None:
        self.queue.activate([uid], self._clock.monotonic())
        self._wake.set()

    def _requeue(self, pod: Pod, placed: Placed | None, rejector: str = "") -> bool:
        """Queue a pod whose assumption was taken back; False if it does not wait for a node."""
        live = self._pods.store.get(pod.key)
        if live is None or live.metadata.uid != pod.metadata.uid or live.spec.node_name:
            return False
        info = self._handlers.info(live)
        self.cycle.nominator.seen(info, None)
        queued = placed.queued if placed is not None else None
        self.queue.take_back(info, self._clock.monotonic(), tried=queued, rejector=rejector)
        self._wake.set()
        return True
