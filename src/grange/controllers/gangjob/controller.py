"""The shell of the job controller: what it is made of, and what wakes it.

A job is reconciled when it, its pods, its Services or its gang's object change, and when a timer of
its plan is due. What a reconcile does is in ``job_reconciler``.
"""

from dataclasses import replace
from typing import Generic, TypeVar

from grange.api import minimum_attempts
from grange.api.kinds.node import Node, address_of
from grange.api.meta import ObjectKey, Resource
from grange.base.backoff import Exponential
from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.controllers.gangjob.adapter import JobAdapter
from grange.controllers.gangjob.config import GangJobConfig
from grange.controllers.gangjob.job_listers import JobListers
from grange.controllers.gangjob.job_pod_control import PODS, SERVICES
from grange.controllers.gangjob.job_pods import TRACKING_FINALIZER
from grange.controllers.gangjob.job_reconciler import JobReconciler
from grange.reconcile.controller import Controller, Result
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.informer import Informer
from grange.reconcile.orphaned_pods import OrphanedPods
from grange.reconcile.owner_handler import Dependents
from grange.reconcile.recorder import Recorder
from grange.reconcile.workqueue import rate_limited_queue

R = TypeVar("R", bound=Resource)
C = TypeVar("C", bound=Resource)

_RETRY = Exponential(initial_s=0.02, cap_s=60.0)


class JobService(Generic[R]):
    """Reconciles all jobs of one kind; ``run`` it once per process.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        adapter: of the kind.
        config: settings.

    Attributes:
        pace: how soon each job is planned again.
    """

    def __init__(
        self, deps: Deps, adapter: JobAdapter[R], config: GangJobConfig | None = None
    ) -> None:
        config = config or GangJobConfig()
        name = adapter.kind.kind.lower()
        self._name = name
        self._adapter = adapter
        log = deps.log.bind(controller=name)
        rng = deps.rng.fork(name)
        self._recorder = Recorder(
            deps.client,
            f"{name}-controller",
            clock=deps.clock,
            rng=rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._listers = JobListers(deps.informers, adapter)
        expectations = Expectations(deps.clock)
        self._reconciler = JobReconciler(
            replace(deps, log=log),
            adapter,
            self._listers,
            expectations=expectations,
            recorder=self._recorder,
            config=config,
        )
        self.pace = self._reconciler.pace
        self.loop = Controller(
            name,
            self.reconcile,
            queue=rate_limited_queue(deps.clock, _RETRY),
            workers=config.workers,
            clock=deps.clock,
            rng=rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        orphans = OrphanedPods(
            deps.client,
            adapter.kind,
            self._listers.jobs,
            self._listers.pods,
            finalizer=TRACKING_FINALIZER,
        )
        self._orphans = Controller(
            f"{name} orphans",
            orphans.reconcile,
            clock=deps.clock,
            rng=rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        orphans.attach(self._orphans)
        self._orphaned_pods = orphans
        self._watch(adapter, expectations, log)

    def _watch(self, adapter: JobAdapter[R], expectations: Expectations, log: Logger) -> None:
        listers = self._listers
        listers.jobs.add_handler(self._job_added, self._job_changed, self._job_gone)
        listers.nodes.add_handler(self._node, self._node_changed, self._node)

        def follow(informer: Informer[C], kind: str = "") -> None:
            dependents: Dependents[C, R] = Dependents(
                owner_kind=adapter.kind,
                owners=listers.jobs.store,
                expectations=expectations,
                enqueue=self._enqueue,
                kind=kind,
                log=log,
                candidates=listers.adopters,
            )
            dependents.attach(informer)

        follow(listers.pods, PODS)
        listers.pods.add_handler(None, None, self._reconciler.forget_pod)
        follow(listers.services, SERVICES)
        follow(self._reconciler.gang.groups)
        follow(self._reconciler.gang.budgets)
        self._reconciler.gang.follow = follow

    async def run(self) -> None:
        """Work until cancelled; begins when the informers have listed their collections."""
        await self._listers.wait_synced()
        await self._reconciler.gang.wait_synced()
        self._orphaned_pods.enqueue_all()
        async with Nursery(self._name) as nursery:
            nursery.start(self._recorder.run(), name=f"{self._name} events")
            nursery.start(self._orphans.run(), name=f"{self._name} orphans")
            nursery.start(self.loop.run(), name=f"{self._name} loop")

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one job a step closer to its spec.

        Raises:
            Terminal: the spec cannot be acted on.
            GrangeError: a write failed; to be tried again.
        """
        return await self._reconciler.reconcile(key)

    def _enqueue(self, key: ObjectKey) -> None:
        """Wake a job; one whose plan takes long waits for further events first."""
        self.loop.enqueue_after(key, self.pace.delay_s(key))

    def _node_changed(self, old: Node, new: Node) -> None:
        if (old.spec.pod_cidr, address_of(old)) != (new.spec.pod_cidr, address_of(new)):
            self._node(new)

    def _node(self, node: Node) -> None:
        self._reconciler.peers.update(self._listers.nodes.store.list(), self._listers.pods.store)

    def _job_added(self, job: R) -> None:
        self.loop.enqueue(job.key)

    def _job_changed(self, old: R, new: R) -> None:
        if old.metadata.generation != new.metadata.generation:
            self.loop.queue.forget(new.key)  # a new spec is tried at once
        self._reconciler.instruments.changed(new.metadata.uid, lambda: self._adapter.status(new))
        if _facts(old) != _facts(new) or self._reconciler.awaits(new):
            self.loop.enqueue(new.key)

    def _job_gone(self, job: R) -> None:
        self._reconciler.forget(job)


def _facts(job: Resource) -> tuple[object, ...]:
    """What the controller acts on outside of the status."""
    meta = job.metadata
    attempts = meta.annotations.get(minimum_attempts.ANNOTATION)
    return meta.generation, meta.labels, meta.deletion_timestamp, attempts
