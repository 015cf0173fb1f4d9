"""Labels and taints of the nodes of machines.

The agent of a machine registers its node with the startup taint. The controller gives the node its
labels and taints, and takes the startup taint off in the same write, so that no pod is placed before. A node
that is to be switched off gets the taint again, with the time.
"""

from datetime import datetime

import msgspec

from grange.api import timestamps
from grange.api.kinds.machine import (
    CAPACITY_TYPE_LABEL,
    DEDICATED_TAINT,
    NODE_POOL_LABEL,
    ON_DEMAND,
    SPOT,
    STARTUP_TAINT,
    Machine,
)
from grange.api.kinds.node import Node, Taint
from grange.api.kinds.nodepool import DEDICATED, NodePoolSpec
from grange.api.meta import Document, preconditions
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL, ZONE_LABEL
from grange.machines.scaling.machine_facts import is_spot, type_of, zone_of

NO_SCHEDULE = "NoSchedule"


def labels(machine: Machine) -> dict[str, str]:
    """The labels that the node of a machine has."""
    found = {
        **machine.spec.labels,
        NODE_POOL_LABEL: machine.spec.pool,
        INSTANCE_TYPE_LABEL: type_of(machine),
        ZONE_LABEL: zone_of(machine),
        CAPACITY_TYPE_LABEL: SPOT if is_spot(machine) else ON_DEMAND,
    }
    return {key: value for key, value in found.items() if value}


def is_initialized(node: Node, machine: Machine, pool: NodePoolSpec) -> bool:
    """Whether the node has its labels, and the taints that decide about pods."""
    has = node.metadata.labels
    keys = {taint.key for taint in node.spec.taints}
    return (
        all(has.get(key) == value for key, value in labels(machine).items())
        and STARTUP_TAINT not in keys
        and (pool.mode != DEDICATED or DEDICATED_TAINT in keys)
    )


def closing(node: Node, now: datetime) -> Document:
    """The patch that keeps pods away from a node that is to be switched off; initialization opens it again."""
    closed = Taint(STARTUP_TAINT, NO_SCHEDULE, time_added=timestamps.rfc3339(now))
    others = (taint for taint in node.spec.taints if taint.key != STARTUP_TAINT)
    return {
        "metadata": preconditions(node.metadata),
        "spec": {"taints": msgspec.to_builtins((*others, closed))},
    }


def closed_since(node: Node) -> datetime | None:
    """When a node was closed for being switched off; None where it was not, or that is not known."""
    times = [taint.time_added for taint in node.spec.taints if taint.key == STARTUP_TAINT]
    return timestamps.parse(times[0]) if times and times[0] else None


def initialization(node: Node, machine: Machine, pool: NodePoolSpec) -> Document:
    """The patch that gives a node its marks, if it is as it was read."""
    dedicated = (Taint(DEDICATED_TAINT, NO_SCHEDULE),) if pool.mode == DEDICATED else ()
    taints = {(one.key, one.effect): one for one in node.spec.taints if one.key != STARTUP_TAINT}
    for taint in (*machine.spec.taints, *dedicated):
        taints[taint.key, taint.effect] = taint
    annotations = pool.template.annotations
    return {
        "metadata": {
            **preconditions(node.metadata),
            "labels": labels(machine),
            **({"annotations": dict(annotations)} if annotations else {}),
        },
        "spec": {"taints": msgspec.to_builtins(tuple(taints.values()))},
    }
