"""The scheduler as a service: informers in, bindings and conditions out.

One task schedules in short slices, so that the event loop stays responsive (it calls ``schedule_one``),
and hands on what becomes of pods; binders write the bindings (``binder``); writers set conditions of
pods that wait (``pod_conditions``). All of them are children of one nursery. Events of the informers
arrive at ``event_handlers``.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from grange.api.explanation import Explanation
from grange.api.kinds.pod import Pod
from grange.base.errors import InvariantError
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder
from grange.scheduler import plugins
from grange.scheduler.binder import Binder, BindOutcome
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Assumed, Batch, Cycle, Dropped, Outcome, Unschedulable, Waiting
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.errors import CacheCorrupted, SchedulerNotRunning
from grange.scheduler.event_handlers import InformerEventHandlers
from grange.scheduler.explain.attempt_history import AttemptHistory
from grange.scheduler.explain.explainer import PodExplainer
from grange.scheduler.explain.gang_explanation import GangExplanation, explain_gang
from grange.scheduler.framework import PostFilterResult, Profile, Profiles
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.gangs.podgroup_status import StatusWriter
from grange.scheduler.gangs.queue_policies import POLICIES
from grange.scheduler.informers import Informers, wait_for_bindings
from grange.scheduler.metrics import instruments
from grange.scheduler.pod_conditions import SCHEDULER_ERROR, UNSCHEDULABLE, WRITERS, PodConditions
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evictor import Evictor
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne

_SWEEP_S = 1.0
_BROKEN_MAX = 32  # pods in a row whose cycles meet a bug, before all starts again

__all__ = ["Scheduler", "SchedulerConfig"]


class Scheduler:
    """Gives nodes to pods."""

    def __init__(
        self, deps: Deps, config: SchedulerConfig | None = None, *, profile: Profiles | None = None
    ) -> None:
        self._config = config = config or SchedulerConfig()
        self._profile: Profiles = profile or Profile(plugins.DEFAULT)
        self._clock = clock = deps.clock
        self._client = deps.client
        self._log = log = deps.log.bind(component="scheduler")
        self._informers = Informers(deps.informers)
        self._history = AttemptHistory()
        self._wake = asyncio.Event()
        metrics = instruments(deps.metrics)
        self._attempts = {
            result: metrics.attempts.labels(result)
            for result in ("scheduled", "unschedulable", "error")
        }
        self._outcomes = {
            outcome: metrics.bindings.labels(outcome.value) for outcome in BindOutcome
        }
        self._seconds = metrics.seconds
        for pool in ("active", "backoff", "unschedulable"):
            metrics.pending.labels(pool).set_function(partial(self._count_pending, pool))
        budgets = DisruptionBudgets()
        self.cache = Cache(ttl_s=config.assume_ttl_s)
        self.queue = SchedulingQueue(self._profile, config.queue)
        rng = deps.rng.fork("preemption")
        self.cycle = Cycle(
            self._profile,
            self.cache,
            permits_changed=self._wake.set,
            budgets=budgets,
            offset=lambda nodes: rng.integer(0, nodes - 1),
        )
        self._recorder = Recorder(
            deps.client,
            "default-scheduler",
            clock=clock,
            rng=deps.rng,
            log=log,
            metrics=deps.metrics,
        )
        self._conditions = PodConditions(deps.client, self._recorder, clock=clock, log=log)
        self._status = StatusWriter(
            deps.client,
            self._recorder,
            self._informers.groups.store.get,
            self._informers.quotas.store.get,
            clock=clock,
            log=log,
        )
        self._evictor = Evictor(
            deps.client,
            self._recorder,
            self.cycle.nominator,
            activate=self._activate,
            clock=clock,
            log=log,
        )
        self.gangs = Coscheduling(
            self._profile,
            self.cycle,
            self.cache,
            self.queue,
            POLICIES[config.queue_policy](config.overtakes),
            changed=self._status.changed,
            withdrawn=self._evictor.withdraw,
        )
        self.schedule_one = ScheduleOne(self.cycle, self.queue, self.gangs)
        self._handlers = InformerEventHandlers(
            self.cycle,
            self.queue,
            config.scheduler_names,
            now=clock.monotonic,
            log=log,
            informers=self._informers,
            budgets=budgets,
            gangs=self.gangs.handlers,
            conditions=self._conditions,
            history=self._history,
            wake=self._wake,
            in_progress=lambda: (*self._binder.under_way.values(), *self.cycle.waiting_pods.held()),
        )
        self._binder = Binder(
            deps.client,
            self._profile.bind,
            self.cache,
            self._complete,
            config=config,
            clock=clock,
            log=log,
        )
        self._explainer = PodExplainer(
            self._profile_for,
            self.cache,
            self.queue,
            self.cycle.snapshot,
            self._history,
            clock=clock,
            nominator=self.cycle.nominator,
            waits_for=self._waits_for,
            explain_gang=self._explain_gang,
        )
        self._registered = self._running = False
        self._decided = 0  # of the running slice, not counted yet
        self._broken: dict[str, None] = {}  # pods whose cycles met a bug, with no other in between
        self._broken_at = 0  # decisions, when the last of them did

    async def run(self) -> None:
        """Schedule until cancelled.

        Bindings that are under way then have an unknown outcome. To be run again after that is to
        have another turn, with others' in between perhaps: nothing of the last one holds.
        """
        fresh = not self._informers.pods.synced.is_set()  # what it lists from now on is the newest
        try:
            await self._run(fresh=fresh)
        except asyncio.CancelledError:
            self._binder.forget_all()
            raise

    async def _run(self, *, fresh: bool) -> None:
        if self._registered:
            self._start_again()
        else:
            self._registered = True
            self._handlers.register()
        await self._informers.wait_synced()
        if not fresh:
            pods = self._informers.pods
            await wait_for_bindings(self._client, pods, clock=self._clock, log=self._log)
        self._log.info(
            "scheduling", nodes=len(self._informers.nodes.store), waiting=len(self.queue)
        )
        async with Nursery("scheduler") as nursery:
            nursery.start(self._recorder.run(), name="scheduler recorder")
            for number in range(WRITERS):
                nursery.start(self._conditions.run(), name=f"scheduler writer {number}")
            nursery.start(self._conditions.run_delayed_events(), name="scheduler delayed events")
            if self._config.assume_ttl_s:
                nursery.start(self._sweep(), name="scheduler sweep")
            nursery.start(self._status.run(self.gangs), name="scheduler status")
            self._binder.start(nursery)
            self._evictor.start(nursery)
            self._running = True
            try:
                await self._schedule()
            finally:
                self._running = False

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            self._handlers.expire()

    def _start_again(self) -> None:
        """Rebuild all state from what the informers hold.

        After a crash the state may be the reason, and what was in flight is lost.
        """
        self.queue.clear()
        for assumed in self.cycle.waiting_pods.held():
            self.schedule_one.forget(assumed)
        self.cycle.waiting_pods.clear()
        self.cycle.nominator.clear()
        self._handlers.rebuild()

    def _activate(self, uid: str) -> None:
        """Have a pod that waits tried again."""
        self.queue.activate([uid], self._clock.monotonic())
        self._wake.set()

    @property
    def names(self) -> frozenset[str]:
        """The ``schedulerName``s whose pods are ours."""
        return self._config.scheduler_names

    def explain(self, pod: Pod) -> Explanation | None:
        """Why a pod is where it is, or why it still waits; None for a pod that is not ours.

        Synchronous, and short enough to run between two decisions.

        Raises:
            SchedulerNotRunning: it does not run here; another process may.
            SnapshotInconsistent: the snapshot is being repaired; retry.
        """
        if not self._running:
            raise SchedulerNotRunning(
                "it does not run in this process now; another one may do its work"
            )
        return self._explainer.explain(pod)

    def _waits_for(self, pod: Pod) -> str:
        """What a pod waits for apart from plugins."""
        attempts = self._history.of(pod.metadata.uid)
        messages = [item.diagnosis.message for item in attempts if item.diagnosis]
        return self.gangs.waits_for(pod, messages[-1] if messages else "")

    def _explain_gang(self, pod: Pod) -> GangExplanation | None:
        demand = self.gangs.demand(pod)
        if demand is None:
            return None
        return explain_gang(self._profile, self.cycle.snapshot, demand)

    def _profile_for(self, scheduler_name: str) -> Profile | None:
        ours = scheduler_name in self._config.scheduler_names
        return self._profile.named(scheduler_name) if ours else None

    # --- deciding ----------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Decide until cancelled."""
        while True:
            now = self._clock.monotonic()
            self.queue.flush(now)
            self._collect_permitted(now)
            self.gangs.handlers.tick(now)
            idle = self._schedule_slice(now)
            if self._decided:
                self._attempts["scheduled"].inc(self._decided)
                self._decided = 0
            self._binder.work()
            if idle:
                await self._wait()
            else:
                await self._clock.sleep(0)

    def _schedule_slice(self, now: float) -> bool:
        """Decide for a while; True when there is nothing left to do now."""
        limit = now + self._config.slice_s
        for _ in range(self._config.slice_pods):
            if self._binder.full:
                return True  # what follows from an outcome wakes us
            try:
                outcome = self.schedule_one.schedule_one(now)
            except (CacheCorrupted, InvariantError):
                raise  # what every decision is based on is wrong
            except Exception as error:  # a bug that one pod meets costs it a backoff
                outcome = self._handle_bug(error, now)
                if outcome is None:
                    raise
            if outcome is None:
                return True
            self._handle(outcome, now)
            now = self._clock.monotonic()
            if now >= limit:
                return False
        return False

    def _handle_bug(self, error: Exception, now: float) -> Outcome | None:
        """Continue without the pod whose cycle ended in a bug; None when only a restart helps.

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
        outcome = self.schedule_one.handle_bug(error, now)
        if outcome is not None:
            pod = str(queued.info.pod.key)
            if queued.errors == 1:
                self._log.crash("bug in a pod's cycle", error, pod=pod)
            else:
                self._log.warning("bug in a pod's cycle again", pod=pod, error=error)
        return outcome

    def _collect_permitted(self, now: float) -> None:
        """Bind or requeue the pods that Permit plugins have decided on."""
        waiting_pods = self.cycle.waiting_pods
        if waiting_pods:
            waiting_pods.expire(now)
        released = waiting_pods.collect_released()
        for assumed in released:
            self._handle(assumed, now)
        self.gangs.permits_decided(released, now)
        for refused in waiting_pods.collect_refused():
            for assumed in refused.pods:
                self._reject(assumed, refused.plugin, refused.reason)
            self.gangs.permits_decided(refused.pods, now)

    def _reject(self, assumed: Assumed, plugin: str, reason: str) -> None:
        """Forget a held pod's assumption, and try again later."""
        now = self._clock.monotonic()
        self.schedule_one.forget(assumed)
        self.queue.move(ASSIGNED_POD_DELETE, now, assumed.info.pod, None)
        if self._handlers.requeue(assumed.info.pod, assumed, rejector=plugin or "Permit"):
            diagnosis = Diagnosis(self.cycle.snapshot.num_nodes, pre_filter=reason)
            self._handle(Unschedulable(assumed.queued, diagnosis), now)

    # --- outcomes ----------------------------------------------------------------------------

    def _handle(self, outcome: Outcome, now: float) -> None:
        match outcome:
            case Assumed():
                self._decided += 1
                uid = outcome.info.uid
                self._history.scheduled(uid, outcome.node_name, outcome.state.score, now)
                self._binder.put(outcome)
            case Waiting():
                pass
            case Unschedulable(queued, diagnosis, post_filter):
                nominated = self.cycle.nominator.node_of(queued.uid)
                if nominated:
                    diagnosis = replace(diagnosis, nominated=nominated)
                result = "error" if diagnosis.error else "unschedulable"
                self._attempts[result].inc()
                self._history.rejected(queued.uid, diagnosis, now)
                reason = SCHEDULER_ERROR if diagnosis.error else UNSCHEDULABLE
                self._conditions.unschedulable(
                    queued.info.pod,
                    diagnosis.message,
                    reason=reason,
                    event_after_s=diagnosis.event_after_s,
                )
                if post_filter is not None:
                    self._evictor.put(queued.info, self._reject_held(queued.info, post_filter))
            case Batch(outcomes):
                for one in outcomes:
                    self._handle(one, now)
            case Dropped():
                pass

    def _reject_held(self, pod: PodInfo, result: PostFilterResult) -> PostFilterResult:
        """Reject victims that are held: they run nowhere yet, so they need not be deleted."""
        waiting_pods = self.cycle.waiting_pods
        held = [victim.uid for victim in result.victims if victim.uid in waiting_pods]
        for uid in held:
            waiting_pods.reject(uid, "", f"pod {pod.pod.key} preempts")
        left = tuple(victim for victim in result.victims if victim.uid not in held)
        return replace(result, victims=left)

    def _complete(self, group: Sequence[Assumed], outcome: BindOutcome, message: str) -> None:
        """Note how bindings ended; queue the pods again that need another node."""
        self._outcomes[outcome].inc(len(group))
        now = self._clock.monotonic()
        if outcome is BindOutcome.BOUND:
            if self._config.assume_ttl_s:
                for assumed in group:
                    self.cache.finish_binding(assumed.info.pod, now)
            self._seconds.observe(*(now - assumed.queued.first_queued for assumed in group))
            self._conditions.scheduled([assumed.info.pod for assumed in group])
        else:
            for assumed in group:
                # If it is not assumed any more, the informer has shown what became of it.
                if self.cache.is_assumed_pod(assumed.info.pod):
                    self._retry(assumed, now, gone=outcome is BindOutcome.GONE, message=message)
                elif not self.cache.is_on(assumed.uid, assumed.node_name):
                    self.cycle.unreserve(assumed)
        self._wake.set()  # the backlog has space

    def _retry(self, assumed: Assumed, now: float, *, gone: bool, message: str) -> None:
        self.schedule_one.forget(assumed)
        self.queue.move(ASSIGNED_POD_DELETE, now, assumed.info.pod, None)
        if not gone and self._handlers.requeue(assumed.info.pod, assumed):
            self.gangs.handlers.bind_failed(assumed.info.pod, assumed.queued, now)
            if message:
                why = f"the binding to {assumed.node_name} was refused: {message}"
                diagnosis = Diagnosis(1, waits=why, error=True)
                self._history.rejected(assumed.uid, diagnosis, now)
                self._conditions.unschedulable(assumed.queued.info.pod, why, reason=SCHEDULER_ERROR)

    def _count_pending(self, pool: str) -> int:
        found: int = getattr(self.queue.statistics(), pool)
        return found

    async def _wait(self) -> None:
        """Until an event, or until the queue has something to do by itself."""
        self._wake.clear()
        wait_s: float | None = None
        now = self._clock.monotonic()
        deadlines = [
            self.cycle.waiting_pods.next_deadline(),
            self.gangs.handlers.next_deadline(now),
        ]
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
