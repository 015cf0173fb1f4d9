"""Looking at a share of the nodes only: how many, and which.

Nodes are looked at in the order of the node tree, starting where the last search ended, until enough
of them are feasible. In large clusters that bounds the work of the reference; the engine needs no
such bound, so by default every node counts. With sampling the engine decides as the reference does.
"""

import numpy as np

from grange.placement.columns import Integers
from grange.scheduler.engine.equivalence_class import EquivalenceClass
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.snapshot import NodeInfoSnapshot

EVERY_NODE = 100  # percent
_FEW_NODES = 100  # so many feasible nodes are always looked for
_ADAPTIVE = 0
_ADAPTIVE_LEAST = 5  # percent


def num_feasible_nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough.

    Args:
        nodes: how many there are to look at.
        percentage: 1 to 100; 0 takes 50 less one for every 125 nodes, and 5 at least.
    """
    if nodes < _FEW_NODES or percentage >= EVERY_NODE:
        return nodes
    if percentage == _ADAPTIVE:
        percentage = max(_ADAPTIVE_LEAST, 50 - nodes // 125)
    return max(_FEW_NODES, nodes * percentage // 100)


class Rotation:
    """Where the next search starts; one for all profiles of a scheduler.

    Attributes:
        start: a place in the list of nodes.
    """

    def __init__(self) -> None:
        self.start = 0

    def advance(self, processed: int, nodes: int) -> None:
        """A search looked at so many of the nodes in the cluster."""
        self.start = (self.start + processed) % nodes


class Sampler:
    """Chooses among the first feasible nodes in rotated order, from the verdicts of a class by row."""

    def __init__(self, profile: Profile, snapshot: NodeInfoSnapshot, rotation: Rotation) -> None:
        self._profile = profile
        self._snapshot = snapshot
        self._rotation = rotation

    def best(self, one: EquivalenceClass, state: CycleState | None = None) -> str | None:
        """The node for a pod of the class; None when no node is feasible."""
        snapshot = self._snapshot
        order: Integers = np.asarray(snapshot.order)
        total = len(order)
        start = self._rotation.start % total
        turned = np.concatenate([order[start:], order[:start]])
        feasible = one.open_rows(snapshot)
        found = np.flatnonzero(feasible[turned])
        wanted = 1
        if self._profile.ranks:
            wanted = num_feasible_nodes_to_find(total, self._profile.percentage)
        self._rotation.advance(int(found[wanted]) if len(found) > wanted else total, total)
        if not len(found):
            return None
        rows = turned[found[:wanted]]
        sampled = np.zeros(len(feasible), np.bool_)
        sampled[rows] = True
        worth = one.totals(snapshot, sampled)[rows]
        at = int(worth.argmax())
        if state is not None:
            state.score = int(worth[at])
        return snapshot.table.names[int(rows[at])]
