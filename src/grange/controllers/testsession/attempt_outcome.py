"""How an attempt ended, by its pods: the driver's exit is the verdict. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.pod import (
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    is_disruption_target,
)
from grange.controllers.testsession.component_pods import ComponentPod
from grange.controllers.testsession.health import Health, main_container
from grange.controllers.testsession.session_inputs import DiagnosedPod
from grange.controllers.testsession.session_reasons import SessionReason


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """A verdict and its reason.

    Attributes:
        verdict: one of the kind's.
        reason: one word.
        message: for people.
    """

    verdict: str
    reason: str
    message: str


def main_status(pod: Pod) -> ContainerStatus | None:
    """The status of the container that decides."""
    name = main_container(pod)
    for item in pod.status.container_statuses:
        if item.name == name:
            return item
    return None


def termination(pod: Pod) -> ContainerStateTerminated | None:
    """How the container that decides has ended, in its last run that ended."""
    status = main_status(pod)
    if status is None:
        return None
    return status.last_state.terminated or status.state.terminated


def finished_at(pod: Pod) -> datetime | None:
    """When the container that decides ended."""
    ended = termination(pod)
    try:
        return timestamps.parse(ended.finished_at or "") if ended is not None else None
    except timestamps.TimestampError:
        return None


def outcome(
    wanted: Iterable[ComponentPod],
    found: Mapping[str, DiagnosedPod],
    lost: Iterable[str],
    deadline: datetime,
    limit_s: float,
) -> AttemptOutcome | None:
    """The verdict on an attempt that is at work; None as long as there is none.

    The driver's exit decides, if it came in time. What is lost outweighs exits with an
    error, which may follow from the loss. A worker that ends without an error is done.

    Args:
        wanted: the pods of the session, in order.
        found: those that are there, by name.
        lost: names of pods that were there and are gone.
        deadline: of the run, by the clock of this process.
        limit_s: how long the run may take.
    """
    gone = frozenset(lost)
    failed: list[tuple[datetime, int, ComponentPod, DiagnosedPod]] = []
    missing: AttemptOutcome | None = None
    for index, pod in enumerate(wanted):
        item = found.get(pod.name)
        if item is None:
            if pod.name in gone:
                missing = missing or _lost(pod, "its pod is gone")
            continue
        if pod.is_driver and item.health is Health.SUCCEEDED:
            if _is_in_time(item.pod, deadline, limit_s):
                return AttemptOutcome(
                    testsession.PASSED, "", f"{pod.member} ended with exit code 0"
                )
        elif item.health is Health.FAILED:
            if not item.diagnosis.is_infrastructure:
                failed.append((finished_at(item.pod) or deadline, index, pod, item))
            elif _is_lost(item.pod):
                missing = missing or _lost(pod, item.diagnosis.message)
            else:
                why = f"{pod.member} could not be started: {item.diagnosis.message}"
                missing = missing or AttemptOutcome(
                    testsession.ERROR, SessionReason.START_FAILED, why
                )
    if missing is not None:
        return missing
    if failed:
        _, _, pod, item = min(failed, key=lambda entry: entry[:2])
        return _failure(pod, item)
    return None


def _is_in_time(driver: Pod, deadline: datetime, limit_s: float) -> bool:
    """Whether a driver that ended without an error did so within the time of the run.

    Its times are those of its node, whose clock may be wrong by more than a run takes: one that ended
    after the deadline was in time, too, if it was no longer than the limit from its start to its end.
    """
    end = finished_at(driver)
    if end is None or end <= deadline:
        return True
    ended = termination(driver)
    start = timestamps.parse_or(ended.started_at if ended is not None else None, timestamps.EPOCH)
    return (end - start).total_seconds() <= limit_s


def _lost(pod: ComponentPod, why: str) -> AttemptOutcome:
    message = f"{pod.member} was lost: {why or 'its pod was deleted'}"
    return AttemptOutcome(testsession.ERROR, SessionReason.POD_LOST, message)


def _is_lost(pod: Pod) -> bool:
    """Whether a pod was taken away, in contrast to one that was never able to start."""
    return (
        pod.metadata.deletion_timestamp is not None
        or pod.status.phase == "Failed"
        or is_disruption_target(pod)
    )


def _failure(pod: ComponentPod, item: DiagnosedPod) -> AttemptOutcome:
    reason = SessionReason.TEST_FAILED if pod.is_driver else SessionReason.WORKER_FAILED
    message = f"{pod.member} failed: {item.diagnosis.message}"
    return AttemptOutcome(testsession.TEST_FAILED, reason, message)
