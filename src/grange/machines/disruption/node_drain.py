"""In which order the pods of a node go, and when force is used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from grange.api import timestamps
from grange.api.kinds.machine import DISRUPTED_TAINT_KEY
from grange.api.kinds.node import Taint
from grange.api.kinds.nodepool import DO_NOT_DISRUPT_ANNOTATION
from grange.api.kinds.pod import FINISHED, Pod
from grange.api.kinds.priorityclass import SYSTEM_CRITICAL_PRIORITY
from grange.machines.scaling.packing_pods import is_daemon
from grange.placement import taint_toleration

DISRUPTED_TAINT = Taint(key=DISRUPTED_TAINT_KEY, effect="NoSchedule")
"""Taint of nodes whose machine goes; pods that tolerate it stay until the machine ends."""

DRAIN_MIN_S = 5.0
"""No drain is shorter, so that endpoints of the pods are withdrawn before the node ends."""

STUCK_S = 60.0
"""Pods that are deleted and still there so long after their time do not hold a drain up."""


@dataclass(frozen=True, slots=True)
class ForcedRemoval:
    """A pod that is deleted whatever its budgets allow, with so many seconds to end."""

    pod: Pod
    grace_s: int


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What a drain does now.

    Attributes:
        evict: pods to evict: their budgets may refuse, and they are tried again.
        remove: pods to delete by force.
        done: the node can end.
        waits_for: why it is not done, for people.
        after_s: when to look again at the latest; None: when a pod changes.
    """

    evict: tuple[Pod, ...] = ()
    remove: tuple[ForcedRemoval, ...] = ()
    done: bool = False
    waits_for: str = ""
    after_s: float | None = None


def drain_deadline(started: datetime, grace_s: int | None) -> datetime | None:
    """When a drain ends by force; None where its pool sets no time."""
    return None if grace_s is None else started + timedelta(seconds=grace_s)


def drain_step(
    pods: Iterable[Pod], *, started: datetime, deadline: datetime | None, now: datetime
) -> DrainStep:
    """What the drain of a node needs now.

    Pods go in tiers: others, then those of every node, then critical ones, then critical ones of every node.
    A tier begins when the one before has gone.

    Args:
        pods: on the node.
        started: when the drain began.
        deadline: when the node ends whatever is left; before, each pod is deleted early enough to have
            its own grace period.
        now: wall time.
    """
    if deadline is not None and now >= deadline:
        return DrainStep(done=True)
    left = [pod for pod in pods if _must_go(pod, now)]
    shortest = (started + timedelta(seconds=DRAIN_MIN_S) - now).total_seconds()
    if not left:
        if shortest > 0:
            return DrainStep(waits_for="its shortest time", after_s=shortest)
        return DrainStep(done=True)
    present = [pod for pod in left if pod.metadata.deletion_timestamp is None]
    remove = tuple(
        ForcedRemoval(pod, _grace(pod, deadline, now))
        for pod in present
        if deadline is not None and now >= deadline - _own_grace(pod)
    )
    forced = {removal.pod.metadata.uid for removal in remove}
    tier = min(_tier(pod) for pod in left)
    evict = tuple(
        pod
        for pod in present
        if pod.metadata.uid not in forced and _tier(pod) == tier and not is_protected(pod)
    )
    names = sorted(str(pod.key) for pod in left if _tier(pod) == tier)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return DrainStep(
        evict,
        remove,
        waits_for=f"pod {names[0]}{more}",
        after_s=_next(present, deadline, now),
    )


def _must_go(pod: Pod, now: datetime) -> bool:
    meta = pod.metadata
    if pod.status.phase in FINISHED:
        return False
    if is_daemon(pod) and "kubernetes.io/config.mirror" in meta.annotations:
        return False
    if taint_toleration.tolerated(pod.spec.tolerations, DISRUPTED_TAINT):
        return False
    if meta.deletion_timestamp is None:
        return True
    return now < timestamps.parse_or(meta.deletion_timestamp, now) + timedelta(seconds=STUCK_S)


def _tier(pod: Pod) -> int:
    return 2 * (pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY) + is_daemon(pod)


def is_protected(pod: Pod) -> bool:
    """Whether a pod is not to be evicted before the end of a drain."""
    return pod.metadata.annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"


def _own_grace(pod: Pod) -> timedelta:
    return timedelta(seconds=pod.spec.termination_grace_period_seconds)


def _grace(pod: Pod, deadline: datetime | None, now: datetime) -> int:
    own = pod.spec.termination_grace_period_seconds
    if deadline is None:
        return own
    return max(0, min(own, ceil((deadline - now).total_seconds())))


def _next(pods: Sequence[Pod], deadline: datetime | None, now: datetime) -> float | None:
    """Seconds until the next pod is deleted by force."""
    if deadline is None:
        return None
    times = [*(deadline - _own_grace(pod) for pod in pods), deadline]
    return min((time - now).total_seconds() for time in times if time > now)
