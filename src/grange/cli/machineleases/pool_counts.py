"""The machines of each pool as the labels and marks of nodes have them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from grange.api.kinds.machine import DISRUPTED_TAINT_KEY
from grange.api.kinds.machinelease import (
    DIRTY,
    HOLDER_ANNOTATION,
    MACHINE_LEASE,
    POOL_LABEL,
    STATE_ANNOTATION,
    pool_of,
)
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import PACKED, NodePool


@dataclass(slots=True)
class PoolCounts:
    """The machines of one pool, counted.

    Attributes:
        name: value of the node label ``pool``.
        nodes: all of them.
        free: can be leased now.
        leased: someone has them.
        dirty: released, and not clean yet.
        unusable: neither leased nor dirty, and cordoned, not ready or about to be taken away.
        holders: who has machines, with how many, in the order of the nodes.
    """

    name: str
    nodes: int = 0
    free: int = 0
    leased: int = 0
    dirty: int = 0
    unusable: int = 0
    holders: dict[str, int] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Count a node."""
        meta = node.metadata
        self.nodes += 1
        if meta.annotations.get(STATE_ANNOTATION) == DIRTY:
            self.dirty += 1
        elif MACHINE_LEASE in meta.labels:
            self.leased += 1
            holder = meta.annotations.get(HOLDER_ANNOTATION) or meta.labels[MACHINE_LEASE]
            self.holders[holder] = self.holders.get(holder, 0) + 1
        elif _is_usable(node):
            self.free += 1
        else:
            self.unusable += 1


def counts(nodes: Iterable[Node], node_pools: Iterable[NodePool] = ()) -> list[PoolCounts]:
    """The pools by name; nodes without a pool are left out.

    Args:
        nodes: of the cluster.
        node_pools: of the cluster; a pool that a packed one makes machines for may have none at times.
    """
    found: dict[str, PoolCounts] = {}
    for pool in node_pools:
        if pool.spec.mode == PACKED and (name := pool.spec.template.labels.get(POOL_LABEL, "")):
            found[name] = PoolCounts(name)
    for node in sorted(nodes, key=lambda item: item.metadata.name):
        if name := pool_of(node):
            found.setdefault(name, PoolCounts(name)).add(node)
    return [found[name] for name in sorted(found)]


def _is_usable(node: Node) -> bool:
    ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
    goes = any(taint.key == DISRUPTED_TAINT_KEY for taint in node.spec.taints)
    closed = goes or node.spec.unschedulable
    return ready and not closed and node.metadata.deletion_timestamp is None
