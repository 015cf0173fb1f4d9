"""One reconcile of one session: observe → decide (pure) → write the status → write the rest.

The status is written first, under compare-and-set. A reconcile may end at any await; the next one, by
whatever process, continues from the status, the pods and the lease.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from grange.api import codec, timestamps
from grange.api.kinds import TESTSESSION, testsession
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession, TestSessionStatus
from grange.api.meta import Document, ObjectKey, Resource, controller_of, preconditions
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
from grange.controllers.testsession.session_events import RETRY, events_since
from grange.controllers.testsession.session_inputs import (
    DiagnosedPod,
    SessionDecision,
    SessionInputs,
)
from grange.controllers.testsession.session_listers import SessionListers
from grange.controllers.testsession.session_objects import (
    LEASES,
    PODS,
    TRACKED_KINDS,
    SessionObjects,
    is_refused,
)
from grange.reconcile import unanswered
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.recorder import WARNING, Recorder
from grange.reconcile.write_tracker import WriteTracker

_AGAIN_S = 1.0  # after losing a race; an event of the winner's change usually comes sooner
_DETAILS_S = 1.0  # no two writes follow each other sooner for details alone
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
        self._log = deps.log
        self._listers = listers
        self._expectations = expectations
        self._recorder = recorder
        self._evidence = evidence
        self._writes = SessionObjects(deps.client, expectations)
        self._written = WriteTracker(deps.clock)
        self._metrics = session_metrics.instruments(deps.metrics)
        # Of each session, by UID: files that are known to be there, or to be deleted for good.
        self._files: dict[str, set[str]] = {}
        self._removed: dict[str, set[str]] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._gone: dict[str, set[tuple[str, str]]] = {}  # attempt and name of pods seen to go
        self._created: dict[str, set[tuple[str, str]]] = {}  # attempt and name
        self._wrote_at: dict[str, float] = {}
        self._phases: dict[str, str] = {}

    def awaits(self, session: TestSession) -> bool:
        """Whether a reconcile waits for the cache to show this object's last write."""
        return self._written.awaited(session.metadata.uid)

    def forget(self, session: TestSession) -> None:
        """The session is gone."""
        uid = session.metadata.uid
        self._expectations.forget(uid)
        self._written.forget(uid)
        self._wrote_at.pop(uid, None)
        for known in (self._files, self._removed, self._refused, self._gone, self._created):
            known.pop(uid, None)
        self._count_phase(uid, "")
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
        if (wait_s := self._written.remaining_s(session)) > 0:
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
            group=queueing.group_members(session, listers.group_of(session)),
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
        wait_s = self._deferral_s(session, decision.status)
        if decision.status != session.status and not wait_s:
            if not await self._write_status(session, decision.status):
                return Requeue(_AGAIN_S)
            self._measure(session.status, decision.status)
        self._count_phase(uid, decision.status.phase)
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

    def _deferral_s(self, session: TestSession, new: TestSessionStatus) -> float:
        """How long a write can wait that has only details of components; zero: not at all.

        The pods of a session change one by one, and each write has all of them.
        """
        if new == session.status or _is_urgent(session.status, new):
            return 0.0
        left = self._wrote_at.get(session.metadata.uid, 0.0) + _DETAILS_S - self._clock.monotonic()
        return max(0.0, left)

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

    async def _write_status(self, session: TestSession, new: TestSessionStatus) -> bool:
        """Write the status under compare-and-set; False if the session changed or is gone."""
        meta = session.metadata
        change = _difference(codec.to_document(session.status), codec.to_document(new))
        patch: Document = {"metadata": preconditions(meta), "status": change}
        try:
            written = await self._client.patch(
                TESTSESSION, meta.name, meta.namespace, patch=patch, subresource="status"
            )
        except (NotFound, Conflict):
            return False
        self._written.wrote(written)
        self._wrote_at[meta.uid] = self._clock.monotonic()
        return True

    # --- metrics ------------------------------------------------------------------------------

    def _measure(self, old: TestSessionStatus, new: TestSessionStatus) -> None:
        if new.phase in testsession.FINAL_PHASES and old.phase not in testsession.FINAL_PHASES:
            self._metrics.verdicts.labels(new.verdict, _bounded(new.reason)).inc()
        for event in events_since(old.events, new.events):
            if event.type == RETRY:
                self._metrics.retries.labels(_bounded(event.reason)).inc()
        if new.start_time and not old.start_time:
            waited = old.phase_time if old.phase == testsession.QUEUED else new.start_time
            self._metrics.queue.observe(_seconds(waited, new.start_time))
        if new.run_time and not old.run_time:
            self._metrics.provision.observe(_seconds(new.start_time, new.run_time))

    def _count_phase(self, uid: str, phase: str) -> None:
        """Count a session by its phase, and no longer by its former one."""
        phase = "" if phase in testsession.FINAL_PHASES else phase
        if phase == self._phases.get(uid, ""):
            return
        if phase:
            self._phases[uid] = phase
        else:
            self._phases.pop(uid, None)
        counts = Counter(self._phases.values())
        for name in (*_WAITING - {""}, *_AT_WORK, testsession.COLLECTING, testsession.CLEANING):
            self._metrics.phases.labels(name).set(counts[name])


def _is_urgent(old: TestSessionStatus, new: TestSessionStatus) -> bool:
    """Whether more has changed than details of workers: what is decided from is stored at once."""
    details = {
        "components": new.components,
        "message": new.message,
        "observed_generation": new.observed_generation,
    }
    if msgspec.structs.replace(old, **details) != new:
        return True
    return _driver_pod(old) != _driver_pod(new)


def _driver_pod(status: TestSessionStatus) -> str:
    return status.components[-1].pod if status.components else ""


def _bounded(reason: str) -> str:
    """A reason as the value of a label; those of leases are bounded, too."""
    return reason if reason.isidentifier() else ""


def _seconds(start: str | None, end: str | None) -> float:
    first = timestamps.parse_or(start, timestamps.EPOCH)
    last = timestamps.parse_or(end, first)
    return max(0.0, (last - first).total_seconds())


def _difference(old: Document, new: Document) -> Document:
    """A merge patch from one status to another: what is gone is null."""
    patch: Document = {key: None for key in old if key not in new}
    return patch | {key: value for key, value in new.items() if old.get(key) != value}
