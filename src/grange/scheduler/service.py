"""The scheduler as a service: informers in, bindings and conditions out.

One task schedules in short slices, so that the event loop stays responsive (``scheduling_loop``,
which calls ``schedule_one``); binders write the bindings (``binder``); writers
set conditions of pods that wait (``pod_conditions``). All of them are children of one nursery. Events
of the informers arrive at ``event_handlers``. This module wires, starts and queries them.
"""

import asyncio

from grange.api.explanation import Explanation
from grange.api.kinds.pod import Pod
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.errors import NotAtWork
from grange.scheduler.event_handlers import InformerEventHandlers
from grange.scheduler.explain.attempt_history import AttemptHistory
from grange.scheduler.explain.explainer import PodExplainer
from grange.scheduler.framework import Profile, Profiles
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.gangs.podgroup_status import StatusWriter
from grange.scheduler.gangs.queue_policies import POLICIES
from grange.scheduler.informers import Informers, wait_for_bindings
from grange.scheduler.metrics import instruments
from grange.scheduler.nominator import Nominator
from grange.scheduler.pod_conditions import WRITERS, PodConditions
from grange.scheduler.preemption.evictor import Evictor
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne
from grange.scheduler.scheduling_loop import SchedulingLoop
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.scheduler.waiting_pods import WaitingPods

_SWEEP_S = 1.0

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
        self._informers = Informers.of(deps.informers)
        self._history = AttemptHistory()
        self._wake = asyncio.Event()
        metrics = instruments(deps.metrics)
        budgets = DisruptionBudgets()
        snapshot = NodeInfoSnapshot()
        self._nominator = nominator = Nominator()
        self._waiting_pods: WaitingPods[Assumed] = WaitingPods(self._wake.set)
        self.cache = Cache(ttl_s=config.assume_ttl_s)
        self.queue = SchedulingQueue(self._profile, config.queue)
        rng = deps.rng.fork("preemption")
        self.cycle = Cycle(
            self._profile,
            self.cache,
            snapshot=snapshot,
            nominator=nominator,
            waiting_pods=self._waiting_pods,
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
            nominator,
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
        self.schedule_one = ScheduleOne(self.cycle, self.cache, self.queue, self.gangs)
        self._handlers = InformerEventHandlers(
            self._profile,
            self.cache,
            self.queue,
            config.scheduler_names,
            now=clock.monotonic,
            log=log,
            nominator=nominator,
            informers=self._informers,
            budgets=budgets,
            gangs=self.gangs.handlers,
            waiting_pods=self._waiting_pods,
            conditions=self._conditions,
            history=self._history,
            wake=self._wake,
            in_progress=lambda: (*self._binder.under_way.values(), *self._waiting_pods.held()),
        )
        self._loop = SchedulingLoop(
            config=config,
            metrics=metrics,
            schedule_one=self.schedule_one,
            cycle=self.cycle,
            cache=self.cache,
            queue=self.queue,
            gangs=self.gangs,
            handlers=self._handlers,
            client=deps.client,
            bind=self._profile.bind,
            evictor=self._evictor,
            conditions=self._conditions,
            history=self._history,
            wake=self._wake,
            clock=clock,
            log=log,
        )
        self._binder = self._loop.binder
        self._explainer = PodExplainer(
            self._profile_for,
            self.cache,
            self.queue,
            snapshot,
            self._history,
            clock=clock,
            nominator=nominator,
            waits_for=self._waits_for,
        )
        self._registered = self._running = False

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
                await self._loop.run()
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
        for assumed in self._waiting_pods.held():
            self.schedule_one.forget(assumed)
        self._waiting_pods.clear()
        self._nominator.clear()
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
            NotAtWork: it does not run here; another process may.
            SnapshotInconsistent: the snapshot is being repaired; retry.
        """
        if not self._running:
            raise NotAtWork("it does not run in this process now; another one may do its work")
        return self._explainer.explain(pod)

    def _waits_for(self, pod: Pod) -> str:
        """What a pod waits for apart from plugins."""
        attempts = self._history.of(pod.metadata.uid)
        messages = [item.diagnosis.message for item in attempts if item.diagnosis]
        return self.gangs.waits_for(pod, messages[-1] if messages else "")

    def _profile_for(self, scheduler_name: str) -> Profile | None:
        ours = scheduler_name in self._config.scheduler_names
        return self._profile.named(scheduler_name) if ours else None
