"""How a pod of a job stands: at work, complete, failed, or interrupted from outside."""

from datetime import datetime, timedelta
from enum import Enum

from grange.api.kinds.pod import DISRUPTION_TARGET
from grange.controllers.gangjob.model import JobPod

REPORT_S = 5.0
"""Seconds after the grace period in which a node may still report how a pod ended."""


class PodOutcome(Enum):
    """What a pod contributes to its job."""

    LIVE = "Live"
    STOPPING = "Stopping"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DISRUPTED = "Disrupted"


ENDED = frozenset({PodOutcome.COMPLETE, PodOutcome.FAILED, PodOutcome.DISRUPTED})
"""Outcomes that do not change any more."""


def outcome(pod: JobPod, now: datetime) -> PodOutcome:
    """How the pod stands.

    A pod that ended before its deletion was requested ended by itself. One that ended afterwards was
    interrupted, whatever its exit code: a program that saves its work on SIGTERM and exits with 0 is
    not complete. One that was never scheduled, or whose node does not report its end in time, has
    been interrupted, too.
    """
    ended_first = not pod.deleting or (
        pod.finished_at is not None
        and pod.deletion_requested_at is not None
        and pod.finished_at < pod.deletion_requested_at
    )
    if pod.phase == "Succeeded":
        return PodOutcome.COMPLETE if ended_first else PodOutcome.DISRUPTED
    if pod.phase == "Failed":
        disrupted = pod.conditions.get(DISRUPTION_TARGET) == "True"
        return PodOutcome.FAILED if ended_first and not disrupted else PodOutcome.DISRUPTED
    if not pod.deleting:
        return PodOutcome.LIVE
    if not pod.scheduled or report_overdue_in(pod, now) <= 0:
        return PodOutcome.DISRUPTED
    return PodOutcome.STOPPING


def report_overdue_in(pod: JobPod, now: datetime) -> float:
    """Seconds until a pod that is being deleted is taken to have ended without a report."""
    if pod.deletion_due_at is None or pod.deletion_due_at == pod.deletion_requested_at:
        return 0.0  # deleted by force: its end is not waited for
    return (pod.deletion_due_at + timedelta(seconds=REPORT_S) - now).total_seconds()
