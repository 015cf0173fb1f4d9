"""Which Job of a CronJob is due, which are replaced, and which finished ones are deleted.

The rules are those of Kubernetes' CronJob controller:
https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from grange.api import timestamps
from grange.api.cron import Schedule

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"

_SECONDS_A_MINUTE = 60


class CronReason(StrEnum):
    """Reasons of the events about a CronJob, those of Kubernetes."""

    MISSED = "MissSchedule"
    ACTIVE = "JobAlreadyActive"
    COMPLETED = "SawCompletedJob"


@dataclass(frozen=True, slots=True)
class CronSpec:
    """What a CronJob asks for.

    Attributes:
        schedule: when.
        concurrency: what happens when the Job of an earlier time still runs.
        suspend: whether no Job is started.
        starting_deadline_s: a Job that is later than this is skipped; None: never too late.
        keep_successful: finished Jobs that are kept.
        keep_failed: failed Jobs that are kept.
    """

    schedule: Schedule
    concurrency: str = ALLOW
    suspend: bool = False
    starting_deadline_s: int | None = None
    keep_successful: int = 3
    keep_failed: int = 1


@dataclass(frozen=True, slots=True)
class CronChild:
    """A Job that the CronJob controls.

    Attributes:
        name: of the Job.
        uid: of the Job.
        created_at: wall time.
        succeeded: whether it is Complete.
        failed: whether it is Failed.
        completed_at: when it ended; None while it runs, or where that is not known.
        scheduled: whether it was created for a time; else a user did (``kubectl create job --from``), and it
            holds back and is replaced by none.
    """

    name: str
    uid: str
    created_at: datetime
    succeeded: bool = False
    failed: bool = False
    completed_at: datetime | None = None
    scheduled: bool = True

    @property
    def finished(self) -> bool:
        """Whether it is Complete or Failed."""
        return self.succeeded or self.failed


@dataclass(frozen=True, slots=True)
class CronState:
    """What the status of a CronJob keeps.

    Attributes:
        active: UIDs of Jobs that run.
        last_schedule: the time of the schedule that was handled last.
        last_successful: when a Job last became Complete.
    """

    active: tuple[str, ...] = ()
    last_schedule: datetime | None = None
    last_successful: datetime | None = None


@dataclass(frozen=True, slots=True)
class CronPlan:
    """What to do.

    Attributes:
        state: as it should be written, without the Job that is created.
        create_for: the time of the schedule whose Job is created; None: none.
        delete: Jobs to delete, with the reason of the event.
        events: type, reason and message; a time that is skipped has the same in each pass.
        requeue_s: look again after so many seconds; None: only when something changes.
    """

    state: CronState
    create_for: datetime | None = None
    delete: tuple[tuple[CronChild, str], ...] = ()
    events: tuple[tuple[str, str, str], ...] = field(default=())
    requeue_s: float | None = None


def job_name(cron: str, due: datetime) -> str:
    """The name of the Job of a time: every attempt to create it uses the same.

    It ends with the time in minutes, as in Kubernetes, or in seconds where that is not a whole minute.
    """
    minutes, rest = divmod(int(due.timestamp()), _SECONDS_A_MINUTE)
    return f"{cron}-{minutes * _SECONDS_A_MINUTE + rest if rest else minutes}"


def plan(
    spec: CronSpec,
    state: CronState,
    children: Sequence[CronChild],
    *,
    created_at: datetime,
    now: datetime,
) -> CronPlan:
    """What to do for one CronJob.

    Args:
        spec: what is wanted.
        state: what was written last.
        children: the Jobs that it controls.
        created_at: of the CronJob: nothing earlier is due.
        now: wall time.
    """
    events = [*_finished_events(state, children)]
    surplus = _surplus(spec, children)
    running = [child for child in children if child.scheduled and not child.finished]
    state = CronState(
        active=tuple(child.uid for child in running),
        last_schedule=state.last_schedule,
        last_successful=_last_successful(state, children),
    )
    delete = [(child, "history limit") for child in surplus]
    if spec.suspend:
        return CronPlan(state, delete=tuple(delete), events=tuple(events))
    requeue_s = _until_next(spec, now)
    due = _due(spec, state.last_schedule or created_at, now)
    if due is None:
        return CronPlan(state, None, tuple(delete), tuple(events), requeue_s)
    if spec.starting_deadline_s is not None:
        late_s = (now - due).total_seconds()
        if late_s > spec.starting_deadline_s:
            message = f"missed the time {timestamps.rfc3339(due)} by more than {spec.starting_deadline_s} s"
            events.append(("Warning", CronReason.MISSED, message))
            return CronPlan(state, None, tuple(delete), tuple(events), requeue_s)
    if running and spec.concurrency == FORBID:
        message = (
            f"not starting the Job of {timestamps.rfc3339(due)}: {running[0].name} still runs and "
            "concurrencyPolicy is Forbid"
        )
        events.append(("Normal", CronReason.ACTIVE, message))
        return CronPlan(state, None, tuple(delete), tuple(events), requeue_s)
    if running and spec.concurrency == REPLACE:
        delete += [(child, "replaced") for child in running]
        state = CronState((), state.last_schedule, state.last_successful)
    return CronPlan(state, due, tuple(delete), tuple(events), requeue_s)


def _due(spec: CronSpec, since: datetime, now: datetime) -> datetime | None:
    """The latest time after ``since`` that is due; earlier ones that were missed are skipped."""
    latest = spec.schedule.latest_until(now)
    return latest if latest is not None and latest > since else None


def _until_next(spec: CronSpec, now: datetime) -> float | None:
    following = spec.schedule.next_after(now)
    return None if following is None else max(0.001, (following - now) / timedelta(seconds=1))


def _surplus(spec: CronSpec, children: Iterable[CronChild]) -> list[CronChild]:
    """Finished Jobs above the limits, oldest first."""
    ordered = sorted(children, key=lambda child: (child.created_at, child.name))
    succeeded = [child for child in ordered if child.succeeded]
    failed = [child for child in ordered if child.failed and not child.succeeded]
    return [
        *succeeded[: max(0, len(succeeded) - spec.keep_successful)],
        *failed[: max(0, len(failed) - spec.keep_failed)],
    ]


def _last_successful(state: CronState, children: Iterable[CronChild]) -> datetime | None:
    ends = [child.completed_at for child in children if child.succeeded and child.completed_at]
    if state.last_successful is not None:
        ends.append(state.last_successful)
    return max(ends, default=None)


def _finished_events(
    state: CronState, children: Iterable[CronChild]
) -> Iterable[tuple[str, str, str]]:
    for child in children:
        if child.finished and child.uid in state.active:
            outcome = "Complete" if child.succeeded else "Failed"
            yield (
                "Normal",
                CronReason.COMPLETED,
                f"Saw completed job: {child.name}, status: {outcome}",
            )
