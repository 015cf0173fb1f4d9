"""The scheduler as a service: informers in, bindings and conditions out.

One task decides, in short slices so that the loop stays responsive (``schedule_one``); binders write
what was decided (``binder``, ``binding_result``); writers tell pods why they wait (``pod_conditions``). All of
them are children of one nursery. What the informers tell comes in by ``intake``. Everything that
decides is synchronous and lives in ``cycle``; here all is put together, started and asked.
"""

import asyncio

from grange.api.explanation import Explanation
from grange.api.kinds.pod import Pod
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder
from grange.scheduler import plugins
from grange.scheduler.binder import Binder, Limits
from grange.scheduler.binding_result import BindingResults
from grange.scheduler.cache import Cache
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Cycle
from grange.scheduler.errors import NotAtWork
from grange.scheduler.explain.attempts import AttemptHistory
from grange.scheduler.explain.explainer import Explainer
from grange.scheduler.framework import Profile, Profiles
from grange.scheduler.gangs.coscheduling import GANG, HELD_BACK, QUOTA, Coscheduling
from grange.scheduler.gangs.queue_policies import POLICIES
from grange.scheduler.gangs.status import StatusWriter
from grange.scheduler.handlers import Handlers
from grange.scheduler.intake import Intake
from grange.scheduler.metrics import instruments
from grange.scheduler.parts import Informers, Parts
from grange.scheduler.pod_conditions import Reporter
from grange.scheduler.preemption.budgets import Budgets
from grange.scheduler.preemption.evictor import Evictor
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueueStatistics
from grange.scheduler.schedule_one import SchedulingLoop
from grange.scheduler.wait_for_sync import catch_up

__all__ = ["Scheduler", "SchedulerConfig"]


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
        self._config = config = config or SchedulerConfig()
        self._profile: Profiles = profile or Profile(plugins.DEFAULT)
        self._clock = deps.clock
        self._client = deps.client
        self._log = deps.log.bind(component="scheduler")
        self._informers = Informers.of(deps.informers)
        self._wake = asyncio.Event()
        self.cache = Cache(ttl_s=config.assume_ttl_s)
        self.queue = SchedulingQueue(self._profile, config.queue)
        budgets = Budgets()
        luck = deps.rng.fork("preemption")
        self.cycle = Cycle(
            self._profile,
            self.cache,
            self.queue,
            budgets=budgets,
            offset=lambda nodes: luck.integer(0, nodes - 1),
        )
        handlers = Handlers(
            self._profile,
            self.cache,
            self.queue,
            config.scheduler_names,
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
        self._status = StatusWriter(
            deps.client,
            self._recorder,
            self._informers.groups.store.get,
            self._informers.quotas.store.get,
            clock=deps.clock,
            log=self._log,
        )
        self._evictor = Evictor(
            deps.client,
            self._recorder,
            self.cycle.nominator,
            activate=self._activate,
            clock=deps.clock,
            log=self._log,
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
        self.cycle.units = self.gangs
        handlers.snapshot = self.cycle.snapshot
        handlers.dress = self.gangs.handlers.transform_node
        self._history = AttemptHistory()
        parts = Parts(
            config=config,
            clock=deps.clock,
            log=self._log,
            metrics=instruments(deps.metrics),
            informers=self._informers,
            cache=self.cache,
            queue=self.queue,
            cycle=self.cycle,
            handlers=handlers,
            gangs=self.gangs,
            reporter=self._reporter,
            history=self._history,
            wake=self._wake,
        )
        self._settler = BindingResults(parts)
        self._binder = Binder(
            deps.client,
            self._profile.bind,
            self.cache,
            self._settler.settle,
            limits=Limits(config.binders, config.binding_group, config.backlog),
            clock=deps.clock,
            log=self._log,
        )
        self._intake = Intake(parts, budgets, self._binder)
        self._decider = SchedulingLoop(parts, self._settler, self._binder, self._evictor)
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
        self._running = False

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
        self._intake.listen()
        await self._informers.wait_synced()
        if not fresh:
            await catch_up(self._client, self._informers.pods, clock=self._clock, log=self._log)
        self._log.info(
            "scheduling", nodes=len(self._informers.nodes.store), waiting=len(self.queue)
        )
        async with Nursery("scheduler") as nursery:
            nursery.start(self._recorder.run(), name="scheduler recorder")
            for number in range(self._config.writers):
                nursery.start(self._reporter.run(), name=f"scheduler writer {number}")
            nursery.start(self._reporter.run_delayed_events(), name="scheduler delayed events")
            if self._config.assume_ttl_s:
                nursery.start(self._settler.sweep(), name="scheduler sweep")
            nursery.start(self._status.run(self.gangs), name="scheduler status")
            self._binder.start(nursery)
            self._evictor.start(nursery)
            self._running = True
            try:
                await self._decider.run()
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
        gang = self.gangs.groups.containing(pod)
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

    def _activate(self, uid: str) -> None:
        self.queue.activate([uid], self._clock.monotonic())
        self._wake.set()

    def _profile_for(self, scheduler_name: str) -> Profile | None:
        ours = scheduler_name in self._config.scheduler_names
        return self._profile.named(scheduler_name) if ours else None
