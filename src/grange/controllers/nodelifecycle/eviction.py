"""How long a pod may stay on a node with NoExecute taints: pure."""

from collections.abc import Sequence

from grange.api.kinds.node import Taint
from grange.api.kinds.pod import Toleration
from grange.controllers.nodelifecycle.node_taints import OURS
from grange.placement.taint_toleration import NO_EXECUTE, tolerates


def stay_s(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], *, default_s: float
) -> float | None:
    """Seconds that the pod may stay from when the taints appeared; None means without limit.

    A taint without an answering toleration sends the pod away at once, except ours about the
    node's health, which grant ``default_s``. Of several tolerations for one taint the shortest
    counts; of several taints the strictest.
    """
    shortest: float | None = None
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        allowed = _allowed(taint, tolerations, default_s)
        if allowed is not None and (shortest is None or allowed < shortest):
            shortest = allowed
    return shortest


def _allowed(taint: Taint, tolerations: Sequence[Toleration], default_s: float) -> float | None:
    answering = [item for item in tolerations if tolerates(item, taint)]
    if not answering:
        return default_s if taint.key in OURS else 0.0
    bounded = [
        max(0.0, float(item.toleration_seconds))
        for item in answering
        if item.toleration_seconds is not None
    ]
    return min(bounded) if bounded else None


def evicting(taints: Sequence[Taint]) -> tuple[tuple[str, str], ...]:
    """Key and value of the taints that evict: a change of these restarts the time."""
    return tuple((item.key, item.value) for item in taints if item.effect == NO_EXECUTE)


def is_only_health(taints: Sequence[Taint]) -> bool:
    """Whether every taint that evicts is ours about the node's health."""
    return all(item.key in OURS for item in taints if item.effect == NO_EXECUTE)
