"""One pod against one node, in plain integers: the rules that every kernel must equal.

The formulas are those of kube-scheduler. Integer scores truncate. The formulas of scores over
resources are in ``allocation``, each with its vectorised form.
"""

from typing import TypeVar

from grange.api.pod_requests import PodRequest, Resources
from grange.placement.columns import Integers
from grange.placement.node_usage import Usage, amount_of, asked_amounts

N = TypeVar("N", int, Integers)

MAX_SCORE = 100
TOO_MANY_PODS = "Too many pods"


def insufficient(name: str) -> str:
    """The reason for a resource that the node has too little of."""
    return f"Insufficient {name}"


def fits(request: PodRequest, allocatable: Resources, usage: Usage) -> bool:
    """Whether the pod fits on the node with its pods: ``fit_reasons`` is empty."""
    need = request.resources
    if usage.pods >= allocatable.pods:
        return False
    if need.cpu_milli and need.cpu_milli > allocatable.cpu_milli - usage.cpu_milli:
        return False
    if need.memory_bytes and need.memory_bytes > allocatable.memory_bytes - usage.memory_bytes:
        return False
    if (
        need.ephemeral_bytes
        and need.ephemeral_bytes > allocatable.ephemeral_bytes - usage.ephemeral_bytes
    ):
        return False
    for name, amount in need.scalars.items():
        if amount and amount > allocatable.scalars.get(name, 0) - usage.scalars.get(name, 0):
            return False
    return True


def fit_reasons(request: PodRequest, allocatable: Resources, usage: Usage) -> list[str]:
    """Every reason why the pod does not fit, in the order pods, CPU, memory, storage, scalars."""
    reasons = [TOO_MANY_PODS] if usage.pods + 1 > allocatable.pods else []
    reasons.extend(
        insufficient(name)
        for name, need in asked_amounts(request.resources)
        if need > amount_of(allocatable, name) - amount_of(usage, name)
    )
    return reasons


def exceeds_node(request: PodRequest, allocatable: Resources) -> bool:
    """Whether some amount is more than the whole node offers, so that evicting cannot help."""
    return any(
        need > amount_of(allocatable, name) for name, need in asked_amounts(request.resources)
    )


def normalised(raw: N, most: int, *, reverse: bool) -> N:
    """Raw scores, one or many, scaled to 0 to 100 by their maximum; ``reverse`` makes the least the best.

    With a maximum of 0 every score is 0, or 100 in reverse.
    """
    scaled = MAX_SCORE * raw // most if most else 0 * raw
    return MAX_SCORE - scaled if reverse else scaled
