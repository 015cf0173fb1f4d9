"""The disruption budget of a controller: one account for everything that takes pods on purpose.

Rollouts, scaling down, moving pods between nodes and cleaning up all ask the same ``Budget`` in the
same pass, so together they never take an available pod that the minimum needs. Pods that are on
their way out, whoever sent them (an eviction, a drain, somebody with a delete), are unavailable and
so have already been paid for: while others disrupt, we wait. A pod that is not available costs
nothing. One of a node that is down is neither: its last news was good, and stale. It does not count
for the minimum, and goes only while the minimum holds without it.
"""

from collections.abc import Iterable, Set as AbstractSet

from grange.api import rollouts
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.rollouts import RolloutLimits


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


def limits(controller: ReplicationController, *, room: int | None = None) -> RolloutLimits:
    """What ``spec.rollout`` allows.

    Args:
        controller: whose.
        room: how many pods more could be placed now; None if it is not known.
    """
    return rollouts.limits(controller.spec.rollout, controller.spec.replicas, room=room)
