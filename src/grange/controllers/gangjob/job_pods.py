"""A pod as the core of jobs looks at it."""

from collections.abc import Iterable
from datetime import timedelta

from grange.api import interrupted_restarts, timestamps
from grange.api.job_status import PROGRESS
from grange.api.kinds.pod import ContainerStateTerminated, Pod, is_finished, is_ready
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.model import JobPod

TRACKING_FINALIZER = "grange.dev/job-tracking"
"""Keeps a pod until its end is counted in the status of its job."""

_LONGEST = 200  # characters of a message; it becomes part of a condition and an event


def job_pod(pod: Pod, labels: JobLabels) -> JobPod:
    """The pod with what its labels and its status state about it.

    A missing or malformed index is -1, a missing or malformed attempt 0.
    """
    meta, status = pod.metadata, pod.status
    containers = (*status.init_container_statuses, *status.container_statuses)
    ended = [(item.name, end) for item in containers if (end := item.state.terminated) is not None]
    finished = is_finished(pod)
    requested = due = None
    if meta.deletion_timestamp:
        due = timestamps.parse_or(meta.deletion_timestamp, timestamps.EPOCH)
        requested = due - timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    ends = [timestamps.parse(end.finished_at) for _, end in ended if end.finished_at]
    return JobPod(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        role=meta.labels.get(labels.role, "").lower() if labels.role else "",
        index=_number(meta.labels.get(labels.index), -1),
        attempt=_number(meta.labels.get(labels.attempt), 0),
        phase=status.phase or "Pending",
        ready=is_ready(pod),
        deleting=due is not None,
        deletion_requested_at=requested,
        deletion_due_at=due,
        tracked=TRACKING_FINALIZER in meta.finalizers,
        scheduled=bool(pod.spec.node_name),
        created_at=timestamps.parse(meta.creation_timestamp) if meta.creation_timestamp else None,
        finished_at=max(ends) if finished and ends else None,
        exit_codes={name: end.exit_code for name, end in ended},
        restart_counts=_restart_counts(pod),
        reasons=frozenset(
            reason for reason in (status.reason, *(end.reason for _, end in ended)) if reason
        ),
        conditions={item.type: item.status for item in status.conditions},
        message=_message(status.message, [end for _, end in ended]) if finished else "",
        progress=meta.annotations.get(PROGRESS, ""),
    )


def _restart_counts(pod: Pod) -> int:
    """Restarts in place, without those that followed stops of the node."""
    status = pod.status
    containers = (*status.init_container_statuses, *status.container_statuses)
    all_restarts = sum(item.restart_count for item in containers)
    return max(0, all_restarts - interrupted_restarts.count_of(status.conditions))


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else default


def _message(of_pod: str, ends: Iterable[ContainerStateTerminated]) -> str:
    """One line of what the pod or else a container that failed left as its message."""
    texts = (of_pod, *(end.message for end in ends if end.exit_code or end.signal))
    text = next((item for item in texts if item), "")
    return " ".join(text.split())[:_LONGEST]
