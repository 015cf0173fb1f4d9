"""One reconcile of one session: observe → decide (pure) → write the status → write the rest.

The status is written first, under compare-and-set. A reconcile may end at any await; the next one, by
whatever process, continues from the status, the pods and the lease.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from grange.api.kinds import TESTSESSION, testsession
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession
from grange.api.meta import ObjectKey, Resource, controller_of
from grange.api.status import Conflict, NotFound, is_namespace_terminating
from grange.controllers.testsession import queueing, session_metrics
from grange.controllers.testsession.component_documents import (
    attempt_files,
    driver_files,
    file_names,
    files_of_pod,
)
from grange.controllers.testsession.component_pods import component_pods
from grange.controllers.testsession.evidence_tasks import EvidenceTasks
from grange.controllers.testsession.health import diagnose
from grange.controllers.testsession.logic import decide
from grange.controllers.testsession.session_inputs import (
    DiagnosedPod,
    SessionDecision,
    SessionInputs,
)
from grange.controllers.testsession.session_listers import SessionListers
from grange.controllers.testsession.session_meter import SessionMeter
from grange.controllers.testsession.session_objects import (
    LEASES,
    PODS,
    TRACKED_KINDS,
    SessionObjects,
    is_refused,
)
from grange.controllers.testsession.session_status_writer import SessionStatusWriter
from grange.reconcile import unanswered
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.recorder import WARNING, Recorder

_AGAIN_S = 1.0  # after losing a race; an event of the winner's change usually comes sooner
_AT_WORK = frozenset({testsession.PROVISIONING, testsession.RUNNING})
_WAITING = frozenset({"", testsession.QUEUED, testsession.ACCEPTED})


class SessionReconciler:
    """Reconciles any number of sessions concurrently.

    Args:
        deps: client, clock, log, metrics.
        listers: sessions, pods, leases.
        expectations: what each session waits to see in the cache.
        recorder: records events for users.
        evidence: collects evidence.
    """

    def __init__(
        self,
        deps: Deps,
        listers: SessionListers,
        *,
        expectations: Expectations,
        recorder: Recorder,
        evidence: EvidenceTasks,
    ) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._listers = listers
        self._expectations = expectations
        self._recorder = recorder
        self._evidence = evidence
        self._writes = SessionObjects(deps.client, expectations)
        self._status = SessionStatusWriter(deps.client, deps.clock)
        self._meter = SessionMeter(session_metrics.instruments(deps.metrics))
        # Of each session, by UID: files that are known to be there, or to be deleted for good.
        self._files: dict[str, set[str]] = {}
        self._removed: dict[str, set[str]] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._gone: dict[str, set[tuple[str, str]]] = {}  # attempt and name of pods seen to go
        self._created: dict[str, set[tuple[str, str]]] = {}  # attempt and name

    def awaits(self, session: TestSession) -> bool:
        """Whether a reconcile waits for the cache to show this object's last write."""
        return self._status.awaits(session)

    def forget(self, session: TestSession) -> None:
        """The session is gone."""
        uid = session.metadata.uid
        self._expectations.forget(uid)
        self._status.forget(session)
        for known in (self._files, self._removed, self._refused, self._gone, self._created):
            known.pop(uid, None)
        self._meter.count_phase(uid, "")
        self._evidence.forget(session)

    def pod_gone(self, pod: Pod) -> None:
        """A pod is gone; it is not created again in the same attempt."""
        reference = controller_of(pod.metadata)
        if reference is None or reference.kind != TESTSESSION.kind:
            return
        session = self._listers.sessions.store.get(
            ObjectKey(pod.metadata.namespace, reference.name)
        )
        if session is not None and session.metadata.uid == reference.uid:
            attempt = pod.metadata.labels.get(testsession.ATTEMPT_LABEL, "")
            self._gone.setdefault(reference.uid, set()).add((attempt, pod.metadata.name))

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one session a step closer to its end.

        Raises:
            GrangeError: a write failed; to be tried again.
        """
        session = self._listers.sessions.store.get(key)
        if session is None:
            return Done()
        if (wait_s := self._status.remaining_s(session)) > 0:
            return Requeue(wait_s)
        caches: Mapping[str, Indexer[Any]] = {
            PODS: self._listers.pods.store,
            LEASES: self._listers.leases.store,
        }
        wait_s = await unanswered.wait_s(
            self._client, self._expectations, session, TRACKED_KINDS, caches=caches
        )
        if wait_s > 0:
            return Requeue(wait_s)
        self._evidence.settle(session)
        pods = self._listers.pods_of(session)
        if await self._lags_behind(session, pods):
            return Requeue(_AGAIN_S)
        self._evidence.follow(session, pods)
        inputs = await self._observe(session, pods)
        return await self._apply(inputs, decide(inputs))

    # --- observe ------------------------------------------------------------------------------

    async def _lags_behind(self, session: TestSession, pods: list[Pod]) -> bool:
        """Whether the server has a pod that the status has, or that was created, and the cache has not.

        After a take-over the cache of pods may be behind the one of sessions. A pod that is not
        there would be taken for lost. One that was created and is gone before the cache shows it
        is lost: it may have run, and is not created again.
        """
        if session.status.phase not in _AT_WORK:
            return False
        cached, attempt = {pod.metadata.name for pod in pods}, str(session.status.attempt)
        uid = session.metadata.uid
        gone = self._gone.get(uid, set())
        known = [item.pod for item in session.status.components if item.pod]
        known += [name for one, name in self._created.get(uid, ()) if one == attempt]
        for name in known:
            if name not in cached and (attempt, name) not in gone:
                if await self._writes.has_pod(session, name):
                    return True
                gone.add((attempt, name))
        if gone:
            self._gone[uid] = gone
        return False

    async def _observe(self, session: TestSession, pods: list[Pod]) -> SessionInputs:
        listers, uid, now = self._listers, session.metadata.uid, self._clock.now()
        leases = tuple(listers.leases_of(session))
        granted = {item.node for lease in leases for item in lease.status.machines}
        waiting = session.status.phase in _WAITING
        ended = session.status.phase == testsession.CLEANING and not pods
        attempt = str(session.status.attempt)
        return SessionInputs(
            session,
            now,
            pods=tuple(DiagnosedPod(pod, diagnose(pod, now)) for pod in pods),
            leases=leases,
            default_pools=listers.policy().spec.default_pools,
            group=queueing.group_members(session, listers.group_of(session), now),
            occupied=self._occupied(session) if waiting else {},
            gone=frozenset(name for one, name in self._gone.get(uid, ()) if one == attempt),
            refused=self._refused.get(uid, {}),
            machines=frozenset(
                node for node in granted if ObjectKey("", node) in listers.nodes.store
            ),
            evidence=self._evidence.collected(session),
            collects=self._evidence.collects,
            confirmed=ended and await self._is_over(session),
            expected_seconds=(
                queueing.expected_seconds(session, listers.runs_of(session)) if waiting else None
            ),
            link_mounts=listers.mounts_are_links(),
            environment=self._evidence.environment(session),
        )

    async def _is_over(self, session: TestSession) -> bool:
        """Whether no pod of the attempt is there, and none can start any more."""
        meta = session.metadata
        files = file_names(meta.name, meta.uid, str(session.status.attempt))
        if not self._removed.get(meta.uid, set()).issuperset(files):
            return False
        return await self._writes.is_free_of_pods(session)

    def _occupied(self, session: TestSession) -> Mapping[str, str]:
        """Names of the session's pods and lease that other objects have, and whose they are."""
        namespace, uid = session.metadata.namespace, session.metadata.uid
        found: dict[str, Resource | None] = {
            pod.name: self._listers.pods.store.get(ObjectKey(namespace, pod.name))
            for pod in component_pods(session)
        }
        lease = f"{session.metadata.name}-{session.status.attempt}"
        found[lease] = self._listers.leases.store.get(ObjectKey(namespace, lease))
        occupied: dict[str, str] = {}
        for name, obj in found.items():
            if obj is None:
                continue
            owner = controller_of(obj.metadata)
            if owner is None or owner.uid != uid:
                occupied[name] = f"{owner.kind} {owner.name}" if owner is not None else "no owner"
        return occupied

    # --- write --------------------------------------------------------------------------------

    async def _apply(self, inputs: SessionInputs, decision: SessionDecision) -> Result:
        session, uid = inputs.session, inputs.session.metadata.uid
        wait_s = self._status.deferral_s(session, decision.status)
        if decision.status != session.status and not wait_s:
            if not await self._status.write(session, decision.status):
                return Requeue(_AGAIN_S)
            self._meter.measure(session.status, decision.status)
        self._meter.count_phase(uid, decision.status.phase)
        for notice in decision.notices:
            self._recorder.event(session, *notice, kind=TESTSESSION)
        await self._remove(session, decision)
        if decision.lease is not None:
            names = {lease.metadata.name: lease for lease in inputs.leases}
            await self._writes.request(session, decision.lease, names.get(decision.lease.name))
        if decision.create:
            refused = await self._create(decision)
            if refused:
                return Requeue(0.0)
        if decision.collect:
            self._evidence.collect(msgspec.structs.replace(session, status=decision.status))
        if decision.delete_session:
            await self._delete(session)
            return Done()
        timers = [item for item in (decision.requeue_s, wait_s or None) if item is not None]
        return Requeue(min(timers)) if timers else Done()

    async def _remove(self, session: TestSession, decision: SessionDecision) -> None:
        """Files first: from then on no pod starts that is created late."""
        uid = session.metadata.uid
        removed = self._removed.setdefault(uid, set())
        theirs = {name for item in decision.remove for name in files_of_pod(item.pod)}
        if left := {*decision.remove_files, *theirs} - removed:
            await self._writes.remove_files(session, sorted(left))
            removed |= left
        if decision.remove_files:
            self._refused.pop(uid, None)
        if decision.remove:
            await self._writes.delete_pods(session, decision.remove)
        for lease in decision.release:
            await self._writes.release(lease)

    async def _create(self, decision: SessionDecision) -> bool:
        """Create files and pods; whether a pod was refused for good.

        Raises:
            ApiError: something could not be created; try again.
        """
        context, pods = decision.context, decision.create
        uid = context.session.metadata.uid
        known = self._files.setdefault(uid, set())
        files = {context.files: attempt_files(context)}
        if any(pod.is_driver for pod in pods):
            files[context.driver_files] = driver_files(context, decision.workers)
        missing = {name: document for name, document in files.items() if name not in known}
        await self._writes.add_files(context.session, missing.values())
        known.update(missing)
        created, errors = await self._writes.create_pods(context, pods, decision.workers)
        attempt = str(context.attempt)
        self._created.setdefault(uid, set()).update((attempt, name) for name in created)
        for name, error in errors.items():
            if not is_namespace_terminating(error):
                message = f"Error creating {name}: {error.message}"
                self._recorder.event(
                    context.session, WARNING, "FailedCreatePod", message, kind=TESTSESSION
                )
        refused = {name: error.message for name, error in errors.items() if is_refused(error)}
        if refused:
            self._refused[uid] = refused
        elif errors:
            raise errors[min(errors)]
        return bool(refused)

    async def _delete(self, session: TestSession) -> None:
        meta = session.metadata
        try:
            await self._client.delete(TESTSESSION, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return
