"""The node table: one row a node, one array a quantity.

Rows are stable: a node keeps its row until it is removed, and freed rows are used again. Arrays
double when full. Labels become integer columns on demand, one for every key that some selector
asks about; sets of taints are interned, since nodes share few. A row is *valid* while a node is in
it; the other arrays mean nothing in an invalid row.

What pods use changes with every placement, and most placements are followed by no look at all rows.
So the rows whose usage changed are noted, and their columns are written when one is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grange.api.kinds.node import Node, Taint
from grange.api.pod_requests import Resources
from grange.placement.node_usage import IDLE, Usage
from grange.placement.ports import NO_PORTS, UsedPorts

Integers: TypeAlias = NDArray[np.int64]
Ids: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = slice | Integers

_NO_LABELS: Mapping[str, str] = {}
_NOTHING = Resources()
ABSENT = -1
_AMOUNT_LIMIT = 2**62


@dataclass(slots=True)
class LabelColumn:
    """One label key over all rows.

    Attributes:
        ids: the number of each row's value; ``ABSENT`` where the label is missing.
        values: the value of each number.
        numbers: the number of each value.
    """

    ids: Ids
    values: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, value: str) -> int:
        """The value's number, given out now if it is new."""
        known = self.numbers.get(value)
        if known is None:
            known = self.numbers[value] = len(self.values)
            self.values.append(value)
        return known


@dataclass(slots=True)
class ScalarColumn:
    """One extended resource over all rows."""

    total: Integers
    used: Integers


class Image(Protocol):
    """An image that some nodes have.

    Attributes:
        size_bytes: its size.
        nodes: their names.
    """

    size_bytes: int
    nodes: dict[str, None]


def _written(name: str) -> Any:
    """A column of what pods use, which is written before it is read."""

    def read(table: "NodeTable") -> Any:
        table._write()
        return getattr(table, name)

    return property(read)


class NodeTable:
    """The table. Not shared between owners; readers must not write to the arrays.

    Attributes:
        size: rows that were ever in use; every array is at least this long.
        valid, unschedulable: one bool a row.
        cpu_total … pods_total: what the node offers (int64).
        cpu_used … pods_used: what its pods need; pods, thousandths of a CPU, bytes.
        cpu_nonzero, memory_nonzero: what scoring assumes of its pods.
        taint_set: index into ``taint_sets``.
        rows: row by node name.
        names: node name by row; empty in an invalid row.
        images: the images that nodes have, by name; kept current by the owner of the table.
        declared: the features that nodes declare, by row; rows without any are left out.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.size = 0
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.images: Mapping[str, Image] = {}
        self.scalars: dict[str, ScalarColumn] = {}
        self.taint_sets: list[tuple[Taint, ...]] = []
        self.declared: dict[int, frozenset[str]] = {}
        self._taint_numbers: dict[tuple[tuple[str, str, str], ...], int] = {}
        self._labels: dict[str, LabelColumn] = {}
        self._row_labels: list[Mapping[str, str]] = []
        self._row_totals: list[Resources] = []
        self._row_usage: list[Usage] = []
        self._free: list[int] = []
        self._unwritten: dict[int, None] = {}
        self.valid: Mask = np.zeros(capacity, np.bool_)
        self.unschedulable: Mask = np.zeros(capacity, np.bool_)
        self.taint_set: Ids = np.zeros(capacity, np.int32)
        self.cpu_total: Integers = np.zeros(capacity, np.int64)
        self.memory_total: Integers = np.zeros(capacity, np.int64)
        self.ephemeral_total: Integers = np.zeros(capacity, np.int64)
        self.pods_total: Integers = np.zeros(capacity, np.int64)
        self._cpu_used: Integers = np.zeros(capacity, np.int64)
        self._memory_used: Integers = np.zeros(capacity, np.int64)
        self._ephemeral_used: Integers = np.zeros(capacity, np.int64)
        self._pods_used: Integers = np.zeros(capacity, np.int64)
        self._cpu_nonzero: Integers = np.zeros(capacity, np.int64)
        self._memory_nonzero: Integers = np.zeros(capacity, np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def capacity(self) -> int:
        """How many rows fit before the arrays grow."""
        return len(self.valid)

    @property
    def all(self) -> slice:
        """Every row that was ever in use, valid or not."""
        return slice(0, self.size)

    cpu_used: Integers = _written("_cpu_used")
    memory_used: Integers = _written("_memory_used")
    ephemeral_used: Integers = _written("_ephemeral_used")
    pods_used: Integers = _written("_pods_used")
    cpu_nonzero: Integers = _written("_cpu_nonzero")
    memory_nonzero: Integers = _written("_memory_nonzero")

    def _grow(self) -> None:
        extra = max(64, self.capacity)

        def longer(column: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.concatenate([column, np.zeros(extra, column.dtype)])

        for name, column in list(vars(self).items()):
            if isinstance(column, np.ndarray):
                setattr(self, name, longer(column))
        for scalar in self.scalars.values():
            scalar.total = np.concatenate([scalar.total, np.zeros(extra, np.int64)])
            scalar.used = np.concatenate([scalar.used, np.zeros(extra, np.int64)])
        for label in self._labels.values():
            label.ids = np.concatenate([label.ids, np.full(extra, ABSENT, np.int32)])

    # --- writing -----------------------------------------------------------------------------

    def put_node(self, node: Node, allocatable: Resources) -> int:
        """Write the node object into its row, a new one for a new name.

        Returns:
            The row.
        """
        name = node.metadata.name
        row = self.rows.get(name)
        if row is None:
            row = self._new_row(name)
        self.valid[row] = True
        self.unschedulable[row] = node.spec.unschedulable
        self.taint_set[row] = self._taint_number(node.spec.taints)
        self.cpu_total[row] = allocatable.cpu_milli
        self.memory_total[row] = allocatable.memory_bytes
        self.ephemeral_total[row] = allocatable.ephemeral_bytes
        self.pods_total[row] = allocatable.pods
        before, scalars = self._row_totals[row].scalars, allocatable.scalars
        if before or scalars:
            for scalar in {**before, **scalars}:
                self._scalar(scalar).total[row] = scalars.get(scalar, 0)
        self._row_totals[row] = allocatable
        if node.status.declared_features:
            self.declared[row] = frozenset(node.status.declared_features)
        else:
            self.declared.pop(row, None)
        labels = node.metadata.labels
        self._row_labels[row] = labels
        for key, column in self._labels.items():
            value = labels.get(key)
            column.ids[row] = ABSENT if value is None else column.number(value)
            if len(column.values) > 4 * self.capacity + 64:
                self._labels[key] = self._build_labels(key)
        return row

    def put_usage(self, row: int, usage: Usage) -> bool:
        """Write what the node's pods need.

        Returns:
            Whether anything is different from before.
        """
        old = self._row_usage[row]
        if old is usage or (old.pods == usage.pods and old == usage):
            return False
        self._row_usage[row] = usage
        self._unwritten[row] = None
        if old.scalars is not usage.scalars:
            for scalar in {**old.scalars, **usage.scalars}:
                used = min(usage.scalars.get(scalar, 0), _AMOUNT_LIMIT)
                self._scalar(scalar).used[row] = used
        return True

    def _write(self) -> None:
        rows = [*self._unwritten]
        if not rows:
            return
        used = [self._row_usage[row] for row in rows]
        try:
            self._write_rows(rows, used)
        except OverflowError:  # only a flood of absurd pods bound by hand gets here
            self._write_rows(rows, [_clamped(usage) for usage in used])
        self._unwritten.clear()

    def _write_rows(self, rows: list[int], used: list[Usage]) -> None:
        self._cpu_used[rows] = [usage.cpu_milli for usage in used]
        self._memory_used[rows] = [usage.memory_bytes for usage in used]
        self._ephemeral_used[rows] = [usage.ephemeral_bytes for usage in used]
        self._pods_used[rows] = [usage.pods for usage in used]
        self._cpu_nonzero[rows] = [usage.nonzero_cpu_milli for usage in used]
        self._memory_nonzero[rows] = [usage.nonzero_memory_bytes for usage in used]

    def remove(self, name: str) -> None:
        """Free the node's row.

        Raises:
            KeyError: no such node.
        """
        row = self.rows.pop(name)
        self.put_usage(row, IDLE)
        for scalar in self._row_totals[row].scalars:
            self._scalar(scalar).total[row] = 0
        self._row_totals[row] = _NOTHING
        self._row_labels[row] = _NO_LABELS
        self.declared.pop(row, None)
        self.names[row] = ""
        self.valid[row] = False
        self._free.append(row)

    def _new_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = self.size
            if row == self.capacity:
                self._grow()
            self.size += 1
            self.names.append(name)
            self._row_labels.append(_NO_LABELS)
            self._row_totals.append(_NOTHING)
            self._row_usage.append(IDLE)
        self.rows[name] = row
        return row

    def _taint_number(self, taints: tuple[Taint, ...]) -> int:
        key = tuple([(taint.key, taint.value, taint.effect) for taint in taints])
        number = self._taint_numbers.get(key)
        if number is None:
            number = self._taint_numbers[key] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return number

    def _scalar(self, name: str) -> ScalarColumn:
        column = self.scalars.get(name)
        if column is None:
            shape = self.capacity
            column = ScalarColumn(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
            self.scalars[name] = column
        return column

    # --- reading -----------------------------------------------------------------------------

    def labels(self, key: str) -> LabelColumn:
        """The column of a label key, built at the first call."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = self._build_labels(key)
        return column

    def domains(self, key: str) -> Ids:
        """The number of each row's value of a label, its domain; ``ABSENT`` for rows without the key."""
        ids: Ids = self.labels(key).ids[self.all]
        return ids

    def amounts(self, name: str, rows: Rows) -> tuple[Integers, Integers]:
        """What the rows' nodes offer of a resource, and how much of it is in use."""
        match name:
            case "cpu":
                return self.cpu_total[rows], self.cpu_used[rows]
            case "memory":
                return self.memory_total[rows], self.memory_used[rows]
            case "ephemeral-storage":
                return self.ephemeral_total[rows], self.ephemeral_used[rows]
            case "pods":
                return self.pods_total[rows], self.pods_used[rows]
            case _:
                column = self.scalars.get(name)
                if column is None:
                    nothing: Integers = np.zeros(len(self.valid[rows]), np.int64)
                    return nothing, nothing
                return column.total[rows], column.used[rows]

    def node_labels(self, row: int) -> Mapping[str, str]:
        """All labels of the row's node."""
        return self._row_labels[row]

    def load(self, row: int) -> tuple[Resources, Usage]:
        """What the row's node offers and what its pods use; nodes of one load share both."""
        return self._row_totals[row], self._row_usage[row]

    def ports(self, row: int) -> UsedPorts:
        """The host ports held on the row's node."""
        return self._row_usage[row].ports if row < self.size else NO_PORTS

    def _build_labels(self, key: str) -> LabelColumn:
        column = LabelColumn(np.full(self.capacity, ABSENT, np.int32))
        numbers = column.numbers
        ids = [ABSENT] * len(self._row_labels)
        for row, labels in enumerate(self._row_labels):
            value = labels.get(key)
            if value is not None:
                # Numbers are given out in order, so the next one is how many there are.
                ids[row] = numbers.setdefault(value, len(numbers))
        column.values.extend(numbers)
        column.ids[: len(ids)] = ids
        return column


def _clamped(usage: Usage) -> Usage:
    return Usage(
        min(usage.cpu_milli, _AMOUNT_LIMIT),
        min(usage.memory_bytes, _AMOUNT_LIMIT),
        min(usage.ephemeral_bytes, _AMOUNT_LIMIT),
        usage.pods,
        min(usage.nonzero_cpu_milli, _AMOUNT_LIMIT),
        min(usage.nonzero_memory_bytes, _AMOUNT_LIMIT),
    )
