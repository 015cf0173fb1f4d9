"""The disruption budget of a controller: one account for everything that takes pods on purpose.

Rollouts, scaling down, moving pods between nodes and cleaning up all ask the same ``Budget`` in the
same pass, so together they never take an available pod that the minimum needs. Pods that are on
their way out, whoever sent them (an eviction, a drain, somebody with a delete), are unavailable and
so have already been paid for: while others disrupt, we wait. A pod that is not available costs
nothing. One of a node that is down is neither: its last news was good, and stale. It does not count
for the minimum, and goes only while the minimum holds without it.
"""

from collections.abc import Iterable, Set as AbstractSet
from dataclasses import dataclass

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController


@dataclass(frozen=True, slots=True)
class Limits:
    """What a controller allows while pods are replaced.

    Attributes:
        minimum: pods that stay available.
        ceiling: pods that exist at most.
    """

    minimum: int
    ceiling: int


class Budget:
    """How many available pods may still be taken; used up as pods are granted.

    Args:
        available: uids of the pods that are available now.
        minimum: how many of them must stay.
        unknown: uids of pods that were ready when they were last heard of.
    """

    def __init__(
        self, available: AbstractSet[str], minimum: int, unknown: AbstractSet[str] = frozenset()
    ) -> None:
        self._available = set(available)
        self._unknown = unknown
        self._minimum = minimum

    @property
    def spare(self) -> int:
        """Available pods that may still be taken."""
        return max(0, len(self._available) - self._minimum)

    def cost(self, pod: Pod) -> int:
        """What taking the pod would cost: what is sure to serve nobody comes first."""
        if pod.metadata.uid in self._available:
            return 3
        if pod.metadata.uid in self._unknown:
            return 2
        return 1 if pod.spec.node_name else 0

    def take(self, pod: Pod) -> bool:
        """Ask for a pod; whether it may go. A pod that is not available always may."""
        uid = pod.metadata.uid
        if uid in self._unknown:
            return len(self._available) >= self._minimum
        if uid not in self._available:
            return True
        if not self.spare:
            return False
        self._available.remove(uid)
        return True

    def granted(self, ranked: Iterable[Pod], count: int) -> list[Pod]:
        """The first ``count`` pods of a ranking that may go; those that are refused are skipped."""
        granted: list[Pod] = []
        for pod in ranked:
            if len(granted) >= count:
                break
            if self.take(pod):
                granted.append(pod)
        return granted


def share(value: int | str, replicas: int, *, up: bool = False) -> int:
    """A count or a percentage of the replicas, as a count; a percentage rounds down unless ``up``.

    Text that is no percentage counts as zero.
    """
    if isinstance(value, int):
        return max(0, value)
    digits = value.removesuffix("%")
    if digits == value or not digits.isdecimal():
        return 0
    exact = int(digits) * replicas
    return -(-exact // 100) if up else exact // 100


def limits(controller: ReplicationController, *, room: int | None = None) -> Limits:
    """What ``spec.rollout`` allows.

    Without room for a pod more, surge is worth nothing; then a percentage of ``maxUnavailable``
    that rounds down to zero allows one pod, or nothing could ever be replaced. A plain zero is a
    promise and stays zero.

    Args:
        controller: whose.
        room: how many pods more could be placed now; None if nobody knows.
    """
    spec = controller.spec
    replicas = max(0, spec.replicas)
    unavailable = share(spec.rollout.max_unavailable, replicas)
    surge = share(spec.rollout.max_surge, replicas, up=True)
    if room is not None:
        surge = min(surge, max(0, room))
    if not surge and not unavailable and spec.rollout.max_unavailable not in (0, "0%"):
        unavailable = 1
    return Limits(minimum=max(0, replicas - unavailable), ceiling=replicas + surge)
