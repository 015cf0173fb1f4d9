"""The mark on a pod that is about to be deleted, the condition ``DisruptionTarget``: pure.

Nothing on a pod changes when the taint that evicts it goes. A deletion that something holds on its way
would therefore still apply when the reason for it is gone. So the pod is marked first, by
compare-and-set, and the deletion names a version that has the mark. A controller that finds a mark whose reason
is gone takes it off, which is a write: every deletion that was sent under the mark is refused from then
on, however late it arrives (ADR 10).
"""

from datetime import datetime

import msgspec

from grange.api import conditions, timestamps
from grange.api.kinds.pod import DISRUPTION_TARGET, Pod
from grange.api.meta import Condition, Document, preconditions

BY_TAINT = "DeletionByTaintManager"
BY_POD_GC = "DeletionByPodGC"
CANCELLED = "EvictionCancelled"

_OURS = frozenset({BY_TAINT, BY_POD_GC})


def is_ours(pod: Pod) -> bool:
    """Whether this controller has marked the pod."""
    mark = conditions.find(pod.status.conditions, DISRUPTION_TARGET)
    return mark is not None and mark.status == "True" and mark.reason in _OURS


def stale_in_s(pod: Pod, now: datetime, stale_s: float) -> float:
    """Seconds until a mark is stale because the deletion has not followed; not positive when it is.

    Args:
        pod: which is marked.
        now: wall time.
        stale_s: how long others may take from the mark to the deletion.
    """
    mark = conditions.find(pod.status.conditions, DISRUPTION_TARGET)
    try:
        since = timestamps.parse((mark and mark.last_transition_time) or "")
    except timestamps.TimestampError:
        return 0.0
    return stale_s - (now - since).total_seconds()


def mark_patch(pod: Pod, reason: str, message: str, now: datetime) -> Document:
    """The strategic merge patch that marks the pod, if it still is as it was seen."""
    return _patch(pod, "True", reason, message, now)


def unmark_patch(pod: Pod, now: datetime) -> Document:
    """The strategic merge patch that takes the mark off, if the pod still is as it was seen."""
    return _patch(pod, "False", CANCELLED, "The reason to delete the pod is gone.", now)


def _patch(pod: Pod, status: str, reason: str, message: str, now: datetime) -> Document:
    meta = pod.metadata
    condition = Condition(
        type=DISRUPTION_TARGET,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=timestamps.rfc3339(now),
    )
    return {
        "metadata": preconditions(meta),
        "status": {"conditions": [msgspec.to_builtins(condition)]},
    }
