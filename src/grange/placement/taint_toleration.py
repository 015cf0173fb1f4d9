"""Taints and the tolerations that match them."""

from collections.abc import Iterable, Sequence

from grange.api.kinds.node import Taint
from grange.api.kinds.pod import Toleration

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
HARD = frozenset({NO_SCHEDULE, NO_EXECUTE})

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration matches this taint.

    An empty effect matches every effect; an empty key with ``Exists`` matches every key.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in {"Equal", ""}:
        return bool(toleration.key) and toleration.value == taint.value
    return False


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations matches the taint."""
    return any(tolerates(item, taint) for item in tolerations)


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> list[Taint]:
    """The taints that keep the pod away (NoSchedule or NoExecute), in the node's order."""
    return [item for item in taints if item.effect in HARD and not tolerated(tolerations, item)]


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps the pod away (NoSchedule or NoExecute), in the node's order."""
    for taint in taints:
        if taint.effect in HARD and not tolerated(tolerations, taint):
            return taint
    return None


def count_intolerable_preferences(
    taints: Sequence[Taint], tolerations: Sequence[Toleration]
) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        1
        for taint in taints
        if taint.effect == PREFER_NO_SCHEDULE and not tolerated(tolerations, taint)
    )
