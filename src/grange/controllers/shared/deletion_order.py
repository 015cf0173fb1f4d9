"""Which pod is deleted first if there are too many: a total order, so that every reconcile agrees.

The order is, from first to last: on an ineligible node; not ready (unbound before bound
before running); lower deletion cost; more restarts; sharing its node with more of its siblings;
younger; later name.
"""

from collections import Counter
from collections.abc import Container, Sequence

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.controllers.shared import pod_identity

_Key = tuple[bool, int, int, int, int]

_UNBOUND, _WAITING, _RUNNING, _READY = range(4)


def is_ready(pod: Pod, down: Container[str]) -> bool:
    """Whether the pod is ready, on a Ready node."""
    return pods.is_ready(pod) and pod.spec.node_name not in down


def readiness(pod: Pod, down: Container[str]) -> int:
    """The progress of a pod: 0 unbound, 1 bound, 2 running, 3 ready."""
    if is_ready(pod, down):
        return _READY
    if pod.status.phase == "Running":
        return _RUNNING
    return _WAITING if pod.spec.node_name else _UNBOUND


def deletion_cost(pod: Pod) -> int:
    """The pod's deletion cost annotation; zero when missing or not an integer."""
    text = pod.metadata.annotations.get(pod_identity.DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def restarts(pod: Pod) -> int:
    """How often containers of the pod were restarted."""
    return sum(status.restart_count for status in pod.status.container_statuses)


def victims(
    pods_: Sequence[Pod], eligible: Container[str], down: Container[str] = frozenset()
) -> list[Pod]:
    """The active pods of a controller in the order in which to delete them."""
    there = Counter(pod_identity.node_of(pod) for pod in pods_)

    def key(pod: Pod) -> _Key:
        node = pod_identity.node_of(pod)
        return (
            node == "" or node in eligible,
            readiness(pod, down),
            deletion_cost(pod),
            -restarts(pod),
            -there[node] if node else 0,
        )

    # Stable sorts from the least important criterion up: text cannot be negated in one key.
    ordered = sorted(pods_, key=lambda pod: pod.metadata.name, reverse=True)
    ordered.sort(key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True)
    ordered.sort(key=key)
    return ordered
