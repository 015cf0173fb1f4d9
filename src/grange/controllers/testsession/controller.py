"""The shell of the session controller: what it is made of, and what wakes it.

A session is reconciled when its spec, its pods or its lease change, when a machine is gone, when another
session of its group begins or ends, and when a timer of its decision is due.
"""

from dataclasses import replace
from functools import partial
from typing import TypeVar

from grange.api.kinds import TESTSESSION, testsession
from grange.api.kinds.leasepolicy import LeasePolicy
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession
from grange.api.meta import ObjectKey, Resource
from grange.base.backoff import Exponential
from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.controllers.testsession.component_documents import files_of_pod
from grange.controllers.testsession.config import TestSessionConfig
from grange.controllers.testsession.evidence_collector import EvidenceCollector
from grange.controllers.testsession.evidence_tasks import EvidenceTasks
from grange.controllers.testsession.session_listers import SessionListers
from grange.controllers.testsession.session_objects import LEASES, PODS, remove_files
from grange.controllers.testsession.session_reconciler import SessionReconciler
from grange.reconcile.controller import Controller, Result
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.informer import Informer
from grange.reconcile.orphaned_pods import OrphanedPods
from grange.reconcile.owner_handler import Dependents
from grange.reconcile.recorder import Recorder
from grange.reconcile.workqueue import rate_limited_queue

C = TypeVar("C", bound=Resource)

NAME = "testsession"
_RETRY = Exponential(initial_s=0.02, cap_s=10.0)


class SessionService:
    """Reconciles all test sessions; ``run`` it once per process.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
        collector: keeps the evidence of sessions; None: it is not kept.
    """

    def __init__(
        self,
        deps: Deps,
        config: TestSessionConfig | None = None,
        collector: EvidenceCollector | None = None,
    ) -> None:
        config = config or TestSessionConfig()
        log = deps.log.bind(controller=NAME)
        rng = deps.rng.fork(NAME)
        self._recorder = Recorder(
            deps.client,
            f"{NAME}-controller",
            clock=deps.clock,
            rng=rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._listers = SessionListers(deps.informers)
        self._evidence = EvidenceTasks(collector, deps.clock, log, self._enqueue)
        expectations = Expectations(deps.clock)
        self._reconciler = SessionReconciler(
            replace(deps, log=log),
            self._listers,
            expectations=expectations,
            recorder=self._recorder,
            evidence=self._evidence,
        )
        self.loop = Controller(
            NAME,
            self.reconcile,
            queue=rate_limited_queue(deps.clock, _RETRY),
            workers=config.workers,
            clock=deps.clock,
            rng=rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._orphaned_pods = OrphanedPods(
            deps.client,
            TESTSESSION,
            self._listers.sessions,
            self._listers.pods,
            finalizer=testsession.SESSION_FINALIZER,
            adopts=False,
            prepare=partial(_remove_files, deps.client),
        )
        self._orphans = Controller(
            f"{NAME} orphans",
            self._orphaned_pods.reconcile,
            clock=deps.clock,
            rng=rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._orphaned_pods.attach(self._orphans)
        self._watch(expectations, log)

    def _watch(self, expectations: Expectations, log: Logger) -> None:
        listers = self._listers
        listers.sessions.add_handler(self._session_added, self._session_changed, self._session_gone)
        listers.pods.add_handler(None, None, self._reconciler.pod_gone)
        listers.nodes.add_handler(None, None, self._node_gone)
        listers.policies.add_handler(self._policy, lambda _, new: self._policy(new), self._policy)

        def follow(informer: Informer[C], kind: str) -> None:
            dependents: Dependents[C, TestSession] = Dependents(
                owner_kind=TESTSESSION,
                owners=listers.sessions.store,
                expectations=expectations,
                enqueue=self._enqueue,
                kind=kind,
                log=log,
            )
            dependents.attach(informer)

        follow(listers.pods, PODS)
        follow(listers.leases, LEASES)

    async def run(self) -> None:
        """Work until cancelled; begins when the informers have listed their collections."""
        await self._listers.wait_synced()
        self._orphaned_pods.enqueue_all()
        async with Nursery(NAME) as nursery:
            self._evidence.open(nursery)
            nursery.start(self._recorder.run(), name=f"{NAME} events")
            nursery.start(self._orphans.run(), name=f"{NAME} orphans")
            nursery.start(self.loop.run(), name=f"{NAME} loop")

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one session a step closer to its end.

        Raises:
            GrangeError: a write failed; to be tried again.
        """
        return await self._reconciler.reconcile(key)

    def _enqueue(self, key: ObjectKey) -> None:
        self.loop.enqueue(key)

    def _session_added(self, session: TestSession) -> None:
        self.loop.enqueue(session.key)
        self._wake_group(session)

    def _session_changed(self, old: TestSession, new: TestSession) -> None:
        if old.metadata.generation != new.metadata.generation:
            self.loop.queue.forget(new.key)  # a new spec is tried at once
        if _facts(old) != _facts(new) or self._reconciler.awaits(new):
            self.loop.enqueue(new.key)
        if _has_ended(old) != _has_ended(new):
            self._wake_group(new)

    def _session_gone(self, session: TestSession) -> None:
        self._reconciler.forget(session)
        self._wake_group(session)

    def _wake_group(self, session: TestSession) -> None:
        for other in self._listers.group_of(session):
            if other.metadata.uid != session.metadata.uid and not _has_ended(other):
                self.loop.enqueue(other.key)

    def _node_gone(self, node: Node) -> None:
        """Wake the sessions that have the machine."""
        for lease in self._listers.leases.store.list():
            if any(item.node == node.metadata.name for item in lease.status.machines):
                self.loop.enqueue(ObjectKey(lease.metadata.namespace, lease.spec.holder.name))

    def _policy(self, policy: LeasePolicy) -> None:
        """Wake the sessions that wait: their default pools may have changed."""
        for session in self._listers.sessions.store.list():
            if session.status.phase in ("", testsession.QUEUED):
                self.loop.enqueue(session.key)


async def _remove_files(client: Client, pod: Pod) -> None:
    """Delete the files of a pod's attempt: a creation of it that comes late starts no program."""
    await remove_files(client, pod.metadata.namespace, files_of_pod(pod))


def _facts(session: TestSession) -> tuple[object, ...]:
    """What the controller acts on outside of the status."""
    meta = session.metadata
    return meta.generation, meta.deletion_timestamp


def _has_ended(session: TestSession) -> bool:
    return session.status.phase in testsession.FINAL_PHASES
