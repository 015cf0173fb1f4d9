"""The taints for a node's health, and what the node should carry: pure."""

from collections.abc import Sequence

from grange.api.kinds.node import Node, Taint
from grange.api.meta import Condition
from grange.controllers.nodelifecycle.node_health import NodeHealth
from grange.placement.taint_toleration import NO_EXECUTE, NO_SCHEDULE

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
OURS = frozenset({NOT_READY, UNREACHABLE})
PRESSURES = {"DiskPressure": "node.kubernetes.io/disk-pressure"}
"""Taint by the condition of a node that it follows."""

_KEY = {NodeHealth.NOT_READY: NOT_READY, NodeHealth.SILENT: UNREACHABLE}


def wanted(
    taints: Sequence[Taint], health: NodeHealth, *, may_execute: bool, now: str
) -> tuple[Taint, ...]:
    """The taints that a node should have; equal to the old when nothing changes.

    Args:
        taints: those it has; foreign ones are kept, in their order.
        health: how it is; a node that has not reported yet keeps what it has.
        may_execute: whether a NoExecute taint may be put on now; one that is there for the same
            reason stays, unless the cluster is disrupted (see ``lifted``).
        now: RFC 3339, when new ones are put on.
    """
    if health is NodeHealth.NEW:
        return tuple(taints)
    key = _KEY.get(health)
    kept = [taint for taint in taints if taint.key not in OURS or taint.key == key]
    if key is None:
        return tuple(kept)
    there = {taint.effect for taint in kept if taint.key == key}
    if NO_SCHEDULE not in there:
        kept.append(Taint(key=key, effect=NO_SCHEDULE, time_added=now))
    if NO_EXECUTE not in there and may_execute:
        kept.append(Taint(key=key, effect=NO_EXECUTE, time_added=now))
    return tuple(kept)


def with_pressures(node: Node, taints: Sequence[Taint], *, now: str) -> tuple[Taint, ...]:
    """The taints with those of the pressure that the node reports, and without others of pressure.

    Args:
        node: with its conditions.
        taints: that it is to have otherwise.
        now: RFC 3339, when new ones are put on.
    """
    found = [PRESSURES[item.type] for item in node.status.conditions if _is_pressure(item)]
    kept = [item for item in taints if item.key not in PRESSURES.values() or item.key in found]
    there = {item.key for item in kept}
    new = (Taint(key=key, effect=NO_SCHEDULE, time_added=now) for key in found if key not in there)
    return (*kept, *new)


def _is_pressure(condition: Condition) -> bool:
    return condition.type in PRESSURES and condition.status == "True"


def lifted(taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """The taints without those of ours that evict."""
    return tuple(taint for taint in taints if taint.key not in OURS or taint.effect != NO_EXECUTE)


def wants_execute(taints: Sequence[Taint], health: NodeHealth) -> bool:
    """Whether a NoExecute taint is due that the node does not carry."""
    key = _KEY.get(health)
    return key is not None and not any(
        taint.key == key and taint.effect == NO_EXECUTE for taint in taints
    )
