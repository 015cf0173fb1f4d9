"""Writes the phase of a job into its status: conditions, times, and the event for each step."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from grange.api import conditions, timestamps
from grange.api.job_status import (
    CREATED,
    FINISHED_TYPES,
    QUEUED,
    RESTARTING,
    RUNNING,
    SUSPENDED,
    JobStatus,
)
from grange.api.meta import Condition
from grange.base.statemachine import advance
from grange.controllers.gangjob.job_phase import JOB, JobPhase, JobStep
from grange.controllers.gangjob.model import JobEvent

_TAKES_PLACE_OF = {RUNNING: RESTARTING, RESTARTING: RUNNING}
_BY_WEIGHT = (
    JobPhase.SUCCEEDED,
    JobPhase.FAILED,
    JobPhase.SUSPENDED,
    JobPhase.RESTARTING,
    JobPhase.RUNNING,
    JobPhase.QUEUED,
)


def is_finished(status: JobStatus) -> bool:
    """Whether the job has succeeded or failed, for good."""
    return any(conditions.is_true(status.conditions, kind) for kind in FINISHED_TYPES)


def set_condition(
    present: Sequence[Condition], new: Condition, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with one set; ``Running`` and ``Restarting`` take each other's place.

    Once the job is finished they stay as they are.
    """
    if any(conditions.is_true(present, kind) for kind in FINISHED_TYPES):
        return tuple(present)
    stamp = timestamps.rfc3339(now)
    other = _TAKES_PLACE_OF.get(new.type)
    if other is None or conditions.find(present, other) is None:
        return conditions.set_condition(present, new, stamp)
    stamped = replace(new, last_transition_time=stamp)
    return tuple(
        stamped if item.type == other else item for item in present if item.type != new.type
    )


def phase_of(status: JobStatus) -> JobPhase:
    """Where the job is, by its conditions; the text ``phase`` only repeats it for people."""
    for phase in _BY_WEIGHT:
        if conditions.is_true(status.conditions, phase.value):
            return phase
    return JobPhase.CREATED


class JobStatusWriter:
    """The conditions of one pass; steps are taken in order, and each records its event."""

    def __init__(self, status: JobStatus, kind: str, now: datetime) -> None:
        self.phase = phase_of(status)
        self.status = replace(status, phase=self.phase.value)
        self.events: list[JobEvent] = []
        self._kind = kind
        self._now = now

    def create(self) -> None:
        """Note that the controller has seen the job."""
        if conditions.find(self.status.conditions, CREATED) is None:
            message = f"{self._kind} is created"
            self._set(CREATED, "True", f"{self._kind}Created", message)
            self._record("Normal", f"{self._kind}Created", message)

    def start(self) -> None:
        """Let the active deadline begin."""
        if not self.status.start_time:
            self.status = replace(self.status, start_time=timestamps.rfc3339(self._now))

    def wait(self, reason: str, message: str) -> None:
        """Note why the gang waits."""
        reason = reason or f"{self._kind}Queued"
        before = conditions.find(self.status.conditions, QUEUED)
        if before is None or (before.status, before.reason) != ("True", reason):
            self._record("Normal", f"{self._kind}Queued", message)
        self._set(QUEUED, "True", reason, message)
        if self.phase is JobPhase.CREATED:
            self._advance(JobStep.WAIT)

    def admit(self) -> None:
        """Note that the gang does not wait any more."""
        if conditions.is_true(self.status.conditions, QUEUED):
            self._set(QUEUED, "False", f"{self._kind}Admitted", "the gang is admitted")
        if self.phase is JobPhase.QUEUED:
            self._advance(JobStep.ADMIT)

    def run(self) -> None:
        """Note that the job runs."""
        if self.phase is not JobPhase.RUNNING:
            self._advance(JobStep.RUN)
            self._set(RUNNING, "True", f"{self._kind}Running", f"{self._kind} is running")
            self._record("Normal", f"{self._kind}Running", f"{self._kind} is running")

    def restart(self, message: str) -> None:
        """Note what is being replaced."""
        self._advance(JobStep.RESTART)
        self._set(RESTARTING, "True", f"{self._kind}Restarting", message)
        self._record("Warning", f"{self._kind}Restarting", message)

    def suspend(self) -> None:
        """Note that the job has no pods because it is suspended."""
        if self.phase is JobPhase.SUSPENDED:
            return
        self._advance(JobStep.SUSPEND)
        reason, message = f"{self._kind}Suspended", f"{self._kind} is suspended"
        self._stop_running(reason, message)
        self._set(SUSPENDED, "True", reason, message)
        self.status = replace(self.status, start_time="")
        self._record("Normal", reason, message)

    def resume(self) -> None:
        """Note that the job begins again."""
        if self.phase is JobPhase.SUSPENDED:
            self._advance(JobStep.RESUME)
            reason, message = f"{self._kind}Resumed", f"{self._kind} is resumed"
            self._set(SUSPENDED, "False", reason, message)
            self._record("Normal", reason, message)

    def finish(self, step: JobStep, reason: str, message: str) -> None:
        """Note how the job ended; its conditions do not change any more."""
        self._advance(step)
        own = f"{self._kind}{self.phase.value}"
        reason = reason or own
        self._stop_running(reason, message)
        self._set(self.phase.value, "True", reason, message)
        end = self.status.completion_time or timestamps.rfc3339(self._now)
        self.status = replace(self.status, completion_time=end, counted_pods=())
        self._record("Warning" if step is JobStep.FAIL else "Normal", reason, message)

    def repair_end(self) -> None:
        """Complete the time of the end where another program left it out."""
        if not self.status.completion_time:
            end = conditions.find(self.status.conditions, self.phase.value)
            since = end.last_transition_time if end is not None else None
            since = since or timestamps.rfc3339(self._now)
            self.status = replace(self.status, completion_time=since)

    def _advance(self, step: JobStep) -> None:
        self.phase = advance(JOB, self.phase, step)
        self.status = replace(self.status, phase=self.phase.value)

    def _stop_running(self, reason: str, message: str) -> None:
        present = self.status.conditions
        if conditions.find(present, RUNNING) or conditions.find(present, RESTARTING):
            self._set(RUNNING, "False", reason, message)
        if conditions.is_true(present, QUEUED):
            self._set(QUEUED, "False", reason, message)

    def _set(self, kind: str, status: str, reason: str, message: str) -> None:
        new = Condition(type=kind, status=status, reason=reason, message=message)
        changed = set_condition(self.status.conditions, new, self._now)
        self.status = replace(self.status, conditions=changed)

    def _record(self, kind: str, reason: str, message: str) -> None:
        self.events.append(JobEvent(kind, reason, message))
