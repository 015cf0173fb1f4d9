"""What filters and scores read of a node.

An attribute has three forms that agree: of one node, of many rows of the node table, and, for
queueing hints, of a node object or of a pod that left. Rows with equal values are judged once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from grange.api.kinds.node import Node, Taint
from grange.api.kinds.pod import Pod
from grange.placement import ports
from grange.placement.columns import ABSENT, NodeTable, Rows
from grange.placement.disks import inline_disks
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
        of: its value on a node.
        of_rows: its values on rows.
        of_object: its value according to the node object alone; only with scope ``NODE``.
        of_pod: its value on a node that runs just this pod; only where a pod adds to the value.
        action: the updates of a node object that change it.
    """

    scope: Scope
    of: Callable[[NodeInfo], V]
    of_rows: Callable[[NodeTable, Rows], Values[V]]
    of_object: Callable[[Node], V] | None = None
    of_pod: Callable[[Pod], V] | None = None
    action: Action = NO_ACTION


def _of_object(
    read: Callable[[Node], V],
    of_rows: Callable[[NodeTable, Rows], Values[V]],
    action: Action,
    absent: V,
) -> Attribute[V]:
    def of(info: NodeInfo) -> V:
        return absent if info.node is None else read(info.node)

    return Attribute(Scope.NODE, of, of_rows, of_object=read, action=action)


def _each(values: list[V]) -> Values[V]:
    return np.arange(len(values)), values


def _distinct(values: Iterable[V]) -> Values[V]:
    """Number values by identity; something else keeps them alive."""
    numbers: dict[int, int] = {}
    kept: list[V] = []
    rows = []
    for value in values:
        number = numbers.setdefault(id(value), len(kept))
        if number == len(kept):
            kept.append(value)
        rows.append(number)
    return np.asarray(rows, np.int64), kept


def _numbers(table: NodeTable, rows: Rows) -> Sequence[int]:
    return range(*rows.indices(table.size)) if isinstance(rows, slice) else rows.tolist()


def label(key: str) -> Attribute[str | None]:
    """The value of a label; None for nodes without it."""
    return _of_object(
        lambda node: node.metadata.labels.get(key),
        # The values are numbered from 0, and ABSENT is the number before.
        lambda table, rows: (
            table.labels(key).ids[rows] - ABSENT,
            (None, *table.labels(key).values),
        ),
        Action.NODE_LABEL,
        None,
    )


_NO_FEATURES: frozenset[str] = frozenset()
NameAndLabels: TypeAlias = tuple[str, Mapping[str, str]]
_NAMELESS: NameAndLabels = ("", {})

NAME: Attribute[str] = _of_object(
    lambda node: node.metadata.name,
    lambda table, rows: _each([table.names[row] for row in _numbers(table, rows)]),
    NO_ACTION,
    "",
)
NAME_AND_LABELS: Attribute[NameAndLabels] = _of_object(
    lambda node: (node.metadata.name, node.metadata.labels),
    lambda table, rows: _each(
        [(table.names[row], table.node_labels(row)) for row in _numbers(table, rows)]
    ),
    Action.NODE_LABEL,
    _NAMELESS,
)
UNSCHEDULABLE: Attribute[bool] = _of_object(
    lambda node: node.spec.unschedulable,
    lambda table, rows: (table.unschedulable[rows].view(np.int8), (False, True)),
    Action.NODE_TAINT,
    absent=False,
)
TAINTS: Attribute[Sequence[Taint]] = _of_object(
    lambda node: node.spec.taints,
    lambda table, rows: (table.taint_set[rows], table.taint_sets),
    Action.NODE_TAINT,
    (),
)
DECLARED_FEATURES: Attribute[Collection[str]] = _of_object(
    lambda node: node.status.declared_features,
    lambda table, rows: _distinct(
        table.declared.get(row, _NO_FEATURES) for row in _numbers(table, rows)
    ),
    Action.NODE_FEATURES,
    _NO_FEATURES,
)
EXCLUSIVE_USE: Attribute[UsedPorts] = Attribute(
    Scope.LOAD,
    lambda info: info.usage.ports,
    lambda table, rows: _distinct(table.ports(row) for row in _numbers(table, rows)),
    of_pod=lambda pod: ports.held(
        ports.NO_PORTS, (*ports.host_ports(pod.spec), *inline_disks(pod.spec))
    ),
)
"""Host ports and inline disks in use."""


def _distinct_loads(table: NodeTable, rows: Rows) -> Values[Load]:
    numbers: dict[tuple[int, int], int] = {}
    kept: list[Load] = []
    of_row = []
    for row in _numbers(table, rows):
        allocatable, usage = table.load(row)
        number = numbers.setdefault((id(allocatable), id(usage)), len(kept))
        if number == len(kept):
            kept.append(Load(allocatable, usage))
        of_row.append(number)
    return np.asarray(of_row, np.int64), kept


LOAD: Attribute[Load] = Attribute(Scope.LOAD, lambda info: info.load, _distinct_loads)
"""What the node offers and what its pods use."""
