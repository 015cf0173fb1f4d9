"""The status of a session while it is decided about, and what is to be done besides."""

from collections.abc import Collection, Iterable
from datetime import datetime

from msgspec.structs import replace

from grange.api import conditions, timestamps
from grange.api.kinds import testsession
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.testsession import FINAL_PHASES, SessionEvent, TestSessionStatus
from grange.api.meta import Condition
from grange.base.statemachine import advance
from grange.controllers.testsession.attempt_outcome import AttemptOutcome
from grange.controllers.testsession.component_documents import SessionContext
from grange.controllers.testsession.component_pods import (
    ComponentPod,
    WorkerAddress,
    assign,
    component_pods,
)
from grange.controllers.testsession.session_events import TERMINAL_EVENTS, latest
from grange.controllers.testsession.session_inputs import (
    DiagnosedPod,
    LeaseRequest,
    PodRemoval,
    SessionDecision,
    SessionInputs,
    SessionNotice,
)
from grange.controllers.testsession.session_phase import SESSION, SessionPhase, SessionStep

PHASES = frozenset(phase.value for phase in SessionPhase)
FINISHED = "Finished"
"""Type of the condition that becomes True when a session has ended."""


class SessionDraft:
    """A decision in the making.

    Args:
        inputs: what it is made from.

    Attributes:
        inputs: what it is made from.
        status: as it is to be written.
        wanted: all pods that the session is to have.
    """

    def __init__(self, inputs: SessionInputs) -> None:
        self.inputs = inputs
        self.status: TestSessionStatus = inputs.session.status
        self.wanted = component_pods(inputs.session)
        self.remove: list[PodRemoval] = []
        self.release: list[MachineLease] = []
        self.lease_request: LeaseRequest | None = None
        self.create: tuple[ComponentPod, ...] = ()
        self.workers: tuple[WorkerAddress, ...] = ()
        self._files: tuple[str, ...] = ()
        self.collect = False
        self.delete_session = False
        self._notices: list[SessionNotice] = []
        self._requeue_s: float | None = None

    # --- what is ------------------------------------------------------------------------------

    @property
    def phase(self) -> SessionPhase:
        """Where the session is."""
        known = self.status.phase in PHASES
        return SessionPhase(self.status.phase) if known else SessionPhase.QUEUED

    @property
    def since(self) -> datetime:
        """When it got there."""
        return timestamps.parse_or(self.status.phase_time, self.inputs.now)

    @property
    def found(self) -> dict[str, DiagnosedPod]:
        """The pods of this attempt by name."""
        attempt = str(self.status.attempt)
        return {
            item.pod.metadata.name: item
            for item in self.inputs.pods
            if item.pod.metadata.labels.get(testsession.ATTEMPT_LABEL) == attempt
        }

    def stale(self) -> list[DiagnosedPod]:
        """Pods of other attempts, and pods that the session does not have."""
        names, attempt = {pod.name for pod in self.wanted}, str(self.status.attempt)
        return [
            item
            for item in self.inputs.pods
            if item.pod.metadata.labels.get(testsession.ATTEMPT_LABEL) != attempt
            or item.pod.metadata.name not in names
        ]

    @property
    def lease(self) -> MachineLease | None:
        """The lease of this attempt, if it is there."""
        for lease in self.inputs.leases:
            if lease.metadata.name == self.status.lease:
                return lease
        return None

    def context(self) -> SessionContext:
        """What the pods of this attempt have in common."""
        lease, inputs = self.lease, self.inputs
        nodes = (
            assign(self.wanted, lease.status.machines, inputs.default_pools)
            if lease is not None
            else {}
        )
        return SessionContext(
            inputs.session,
            self.status.attempt,
            lease.metadata.uid if lease is not None else "",
            nodes or {},
            inputs.link_mounts,
            inputs.environment,
        )

    # --- what is to be ------------------------------------------------------------------------

    def step(self, step: SessionStep) -> None:
        """Move to the next phase, from now on."""
        following = advance(SESSION, self.phase, step)
        self.status = replace(
            self.status,
            phase=following.value,
            phase_time=timestamps.rfc3339_micro(self.inputs.now),
        )

    def set(self, **fields: object) -> None:
        """Set fields of the status."""
        self.status = replace(self.status, **fields)

    def event(self, kind: str, message: str = "", reason: str = "", component: str = "") -> None:
        """Append an event; those of attempts that ended long ago are dropped."""
        event = SessionEvent(
            type=kind,
            time=timestamps.rfc3339_micro(self.inputs.now),
            reason=reason,
            message=message,
            component=component,
        )
        self.status = replace(self.status, events=latest((*self.status.events, event)))

    def notice(self, kind: str, reason: str, message: str) -> None:
        """Record an Event on the object."""
        self._notices.append(SessionNotice(kind, reason, message))

    def decide_verdict(self, outcome: AttemptOutcome) -> None:
        """Note how the attempt ended."""
        self.set(
            verdict=outcome.verdict,
            reason=outcome.reason,
            message=outcome.message,
            position=0,
            expected_start=None,
        )

    def requeue(self, seconds: float) -> None:
        """Look again after so many seconds at the latest."""
        seconds = max(0.0, seconds)
        self._requeue_s = seconds if self._requeue_s is None else min(self._requeue_s, seconds)

    def overdue(self, seconds: float) -> bool:
        """Whether the phase has lasted for so long; looks again when it will have."""
        left = (timestamps.shift(self.since, seconds) - self.inputs.now).total_seconds()
        if left > 0:
            self.requeue(left)
        return left <= 0

    def remove_pods(self, items: Iterable[DiagnosedPod], *, forced: bool = False) -> None:
        """Delete pods; those that are on their way out only if they are held, or that is forced."""
        for item in items:
            meta = item.pod.metadata
            held = testsession.SESSION_FINALIZER in meta.finalizers
            if forced or held or not meta.deletion_timestamp:
                self.remove.append(PodRemoval(item.pod, forced))

    def release_leases(self, *, but: Collection[str] = ()) -> None:
        """Delete leases, but those of these names."""
        self.release += [
            lease
            for lease in self.inputs.leases
            if lease.metadata.name not in but and not lease.metadata.deletion_timestamp
        ]

    def remove_files(self) -> None:
        """Delete the files of this attempt: no pod of it starts any more."""
        context = self.context()
        self._files = (context.driver_files, context.files)

    def finish(self) -> None:
        """Set what only a session has that has ended, and the terminal event."""
        now, status = self.inputs.now, self.status
        condition = Condition(
            type=FINISHED, status="True", reason=status.phase, message=status.message
        )
        stamp = timestamps.rfc3339(now)
        self.set(
            completion_time=timestamps.rfc3339_micro(now),
            conditions=conditions.set_condition(status.conditions, condition, stamp),
        )
        self.event(TERMINAL_EVENTS[status.verdict], status.message, status.reason)

    def decision(self) -> SessionDecision:
        """What was decided."""
        context = self.context()
        meta, before = self.inputs.session.metadata, self.inputs.session.status
        if self.status != before or before.phase not in FINAL_PHASES:
            self.set(observed_generation=meta.generation)
        return SessionDecision(
            status=self.status,
            context=context,
            notices=tuple(self._notices),
            remove_files=self._files,
            remove=tuple(self.remove),
            release=tuple(self.release),
            lease=self.lease_request,
            create=self.create,
            workers=self.workers,
            collect=self.collect,
            delete_session=self.delete_session,
            requeue_s=self._requeue_s,
        )
