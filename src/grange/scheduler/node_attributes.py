"""What filters and scores read of a node.

An attribute is read of one node or of many rows, and, for queueing hints, of a node object or of a pod
that left. Rows with equal values are judged once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from grange.api.kinds.node import Node, Taint
from grange.api.kinds.pod import Pod
from grange.placement import ports
from grange.placement.columns import ABSENT, NodeTable, Rows
from grange.placement.loads import Load
from grange.placement.ports import UsedPorts
from grange.scheduler.clusterevents import Action
from grange.scheduler.framework import Scope
from grange.scheduler.nodeinfo import NodeInfo

V = TypeVar("V")
NO_ACTION = Action(0)

Values: TypeAlias = tuple[NDArray[np.integer], Sequence[V]]
"""By row, the number of its value; and the values."""


@dataclass(frozen=True, slots=True)
class Attribute(Generic[V]):
    """One attribute of nodes.

    Attributes:
        scope: for how long a verdict about it holds.
        columns: its values on rows, where the table has them.
        of_object: its value according to the node object alone; only with scope ``NODE``.
        of_pod: its value on a node that runs just this pod; only where a pod adds to the value.
        action: the updates of a node object that change it.
    """

    scope: Scope
    of: Callable[[NodeInfo], V]
    columns: Callable[[NodeTable, Rows], Values[V]] | None = None
    of_object: Callable[[Node], V] | None = None
    of_pod: Callable[[Pod], V] | None = None
    action: Action = NO_ACTION

    def of_rows(self, table: NodeTable, rows: Rows) -> Values[V]:
        """Its values on rows; the same object is one value."""
        if self.columns is not None:
            return self.columns(table, rows)
        numbers: dict[int, int] = {}
        kept: list[V] = []  # so that no identity is used again
        of_row = []
        read, entries = self.of, table.entries
        for row in range(*rows.indices(table.size)) if isinstance(rows, slice) else rows.tolist():
            value = read(entries[row])
            number = numbers.setdefault(id(value), len(kept))
            if number == len(kept):
                kept.append(value)
            of_row.append(number)
        return np.asarray(of_row, np.int64), kept


def _of_object(
    read: Callable[[Node], V],
    action: Action,
    absent: V,
    columns: Callable[[NodeTable, Rows], Values[V]] | None = None,
) -> Attribute[V]:
    def of(info: NodeInfo) -> V:
        return absent if info.node is None else read(info.node)

    return Attribute(Scope.NODE, of, columns, of_object=read, action=action)


def label(key: str) -> Attribute[str | None]:
    """The value of a label; None for nodes without it."""
    return _of_object(
        lambda node: node.metadata.labels.get(key),
        Action.NODE_LABEL,
        None,
        # The values are numbered from 0, and ABSENT is the number before.
        lambda table, rows: (
            table.labels(key).ids[rows] - ABSENT,
            (None, *table.labels(key).values),
        ),
    )


NameAndLabels: TypeAlias = tuple[str, Mapping[str, str]]
_NAMELESS: NameAndLabels = ("", {})
_NO_FEATURES: Collection[str] = frozenset()

NAME: Attribute[str] = _of_object(lambda node: node.metadata.name, NO_ACTION, "")
NAME_AND_LABELS: Attribute[NameAndLabels] = _of_object(
    lambda node: (node.metadata.name, node.metadata.labels), Action.NODE_LABEL, _NAMELESS
)
UNSCHEDULABLE: Attribute[bool] = _of_object(
    lambda node: node.spec.unschedulable,
    Action.NODE_TAINT,
    absent=False,
    columns=lambda table, rows: (table.unschedulable[rows].view(np.int8), (False, True)),
)
TAINTS: Attribute[Sequence[Taint]] = _of_object(
    lambda node: node.spec.taints,
    Action.NODE_TAINT,
    (),
    lambda table, rows: (table.taint_set[rows], table.taint_sets),
)
DECLARED_FEATURES: Attribute[Collection[str]] = _of_object(
    lambda node: node.status.declared_features, Action.NODE_FEATURES, _NO_FEATURES
)
EXCLUSIVE_USE: Attribute[UsedPorts] = Attribute(
    Scope.LOAD,
    lambda info: info.usage.ports,
    of_pod=lambda pod: ports.held(
        ports.NO_PORTS, (*ports.host_ports(pod.spec), *ports.inline_disks(pod.spec))
    ),
)
"""Host ports and inline disks in use."""

LOAD: Attribute[Load] = Attribute(Scope.LOAD, lambda info: info.load)
"""What the node offers and what its pods use."""
