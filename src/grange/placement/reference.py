"""One pod against one node, in plain integers: the rules that every kernel must equal.

The formulas are those of kube-scheduler. Integer scores truncate; the one formula in floating point
(balanced allocation) keeps its order of operations, so that the vectorised form is identical and
not just close.
"""

from collections.abc import Sequence

from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, Request, Resources
from grange.placement.node_usage import Usage

MAX_SCORE = 100
TOO_MANY_PODS = "Too many pods"


def insufficient(name: str) -> str:
    """The reason for a resource that the node has too little of."""
    return f"Insufficient {name}"


def fits(request: Request, allocatable: Resources, usage: Usage) -> bool:
    """Whether the pod fits beside what the node holds: ``fit_reasons`` is empty."""
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


def _amounts(
    request: Request, allocatable: Resources, usage: Usage
) -> list[tuple[str, int, int, int]]:
    need = request.resources
    amounts = [
        (CPU, need.cpu_milli, allocatable.cpu_milli, usage.cpu_milli),
        (MEMORY, need.memory_bytes, allocatable.memory_bytes, usage.memory_bytes),
        (
            EPHEMERAL_STORAGE,
            need.ephemeral_bytes,
            allocatable.ephemeral_bytes,
            usage.ephemeral_bytes,
        ),
    ]
    amounts.extend(
        (name, amount, allocatable.scalars.get(name, 0), usage.scalars.get(name, 0))
        for name, amount in need.scalars.items()
    )
    return amounts


def fit_reasons(request: Request, allocatable: Resources, usage: Usage) -> list[str]:
    """Every reason why the pod does not fit, in the order pods, CPU, memory, storage, scalars."""
    reasons = [TOO_MANY_PODS] if usage.pods + 1 > allocatable.pods else []
    reasons.extend(
        insufficient(name)
        for name, need, total, used in _amounts(request, allocatable, usage)
        if need > 0 and need > total - used
    )
    return reasons


def exceeds_node(request: Request, allocatable: Resources, usage: Usage) -> bool:
    """Whether some amount is more than the whole node offers, so that evicting cannot help."""
    return any(
        need > 0 and need > total for _, need, total, _ in _amounts(request, allocatable, usage)
    )


def least_allocated(
    request: Request, allocatable: Resources, usage: Usage, weights: tuple[int, int] = (1, 1)
) -> int:
    """How empty the node would be, 0 to 100: the weighted mean over CPU and memory.

    Uses the non-zero view; a resource that the node does not have is left out.
    """
    total = parts = 0
    capacity = allocatable.cpu_milli
    if capacity:
        after = usage.nonzero_cpu_milli + request.nonzero_cpu_milli
        if after <= capacity:
            total += weights[0] * ((capacity - after) * MAX_SCORE // capacity)
        parts += weights[0]
    capacity = allocatable.memory_bytes
    if capacity:
        after = usage.nonzero_memory_bytes + request.nonzero_memory_bytes
        if after <= capacity:
            total += weights[1] * ((capacity - after) * MAX_SCORE // capacity)
        parts += weights[1]
    return total // parts if parts else 0


def balanced_allocation(request: Request, allocatable: Resources, usage: Usage) -> int:
    """Whether the pod evens out CPU and memory: 75 changes nothing, more is better.

    Uses real requests, before and after. The distance of the two used fractions counts, capped at
    1 each; with only one of the resources on the node there is nothing to balance.
    """
    cpu_total, memory_total = allocatable.cpu_milli, allocatable.memory_bytes
    if not cpu_total or not memory_total:
        return 75
    cpu, memory = usage.cpu_milli, usage.memory_bytes
    # Of two values the standard deviation is half their distance.
    spread = abs(min(1.0, cpu / cpu_total) - min(1.0, memory / memory_total)) / 2.0
    before = int((1.0 - spread) * MAX_SCORE)
    cpu += request.resources.cpu_milli
    memory += request.resources.memory_bytes
    spread = abs(min(1.0, cpu / cpu_total) - min(1.0, memory / memory_total)) / 2.0
    after = int((1.0 - spread) * MAX_SCORE)
    return 50 + (50 + after - before) // 2


def normalised(raw: Sequence[int], *, reverse: bool) -> list[int]:
    """Raw scores scaled to 0 to 100 by their maximum; ``reverse`` makes the least the best.

    With nothing but zeros every node gets 0, or 100 in reverse.
    """
    most = max(raw, default=0)
    if most == 0:
        return [MAX_SCORE if reverse else 0] * len(raw)
    scaled = [MAX_SCORE * item // most for item in raw]
    return [MAX_SCORE - item for item in scaled] if reverse else scaled
