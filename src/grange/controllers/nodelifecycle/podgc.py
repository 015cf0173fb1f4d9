"""Which pods no other component deletes: pure.

- Pods bound to a node that does not exist: no agent will run or end them. Finished pods that asked for a
  machine of a pool stay: the machine ends with the pod, and the pod has the result.
- Pods on a node that an operator has tainted out-of-service, once they are on their way out.
- Finished pods beyond a bound, oldest first.
"""

from collections.abc import Container, Sequence

from grange.api.kinds import pod as pods
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.pod import Pod

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Orphans:
    """Remembers since when pods have been without a node.

    Args:
        grace_s: a pod without its node for so long is an orphan.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._since: dict[str, float] = {}

    def due(self, pods_: Sequence[Pod], nodes: Container[str], now: float) -> list[Pod]:
        """The bound pods whose node has been missing for the whole grace period.

        Args:
            pods_: all pods.
            nodes: names of the nodes that exist.
            now: monotonic seconds.
        """
        lost = [
            pod
            for pod in pods_
            if pod.spec.node_name and pod.spec.node_name not in nodes and not outlives_node(pod)
        ]
        self._since = {pod.metadata.uid: self._since.get(pod.metadata.uid, now) for pod in lost}
        return [pod for pod in lost if now >= self._since[pod.metadata.uid] + self._grace_s]

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next pod seen without a node is due; None when there is none."""
        dues = [since + self._grace_s - now for since in self._since.values()]
        return min((due for due in dues if due > 0), default=None)


def outlives_node(pod: Pod) -> bool:
    """Whether a pod is kept without its node: it has finished on a machine that was made for it.

    One that always restarts, or that was failed for the loss of its node, has no result.
    """
    return (
        NODE_POOL_LABEL in pod.spec.node_selector
        and pod.spec.restart_policy != "Always"
        and pods.is_finished(pod)
        and not pod.metadata.deletion_timestamp
        and not pods.is_disruption_target(pod)
    )


def out_of_service(pods_: Sequence[Pod], nodes: Container[str]) -> list[Pod]:
    """The pods on their way out whose node is out of service: their agent will not answer."""
    return [pod for pod in pods_ if pod.metadata.deletion_timestamp and pod.spec.node_name in nodes]


def surplus(pods_: Sequence[Pod], bound: int) -> list[Pod]:
    """The finished pods beyond the bound, oldest first."""
    finished = [
        pod for pod in pods_ if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
    ]
    excess = len(finished) - bound
    if excess <= 0:
        return []
    finished.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key))
    return finished[:excess]
