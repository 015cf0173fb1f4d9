"""The node table: one row a node, one array a quantity.

Rows are stable: a node keeps its row until it is removed, and freed rows are used again. Arrays
double when full. Labels become integer columns on demand, one for every key that some selector
asks about; sets of taints are interned, since nodes share few. A row is *valid* while a node is in
it; the other arrays mean nothing in an invalid row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grange.api.kinds.node import Node, Taint
from grange.placement.ports import NO_PORTS, HostPort, UsedPorts
from grange.placement.requests import IDLE, Resources, Usage

Integers: TypeAlias = NDArray[np.int64]
Ids: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = slice | Integers

_NO_LABELS: Mapping[str, str] = {}
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


class NodeTable:
    """The table. Not shared between owners; readers must not write to the arrays.

    Attributes:
        size: rows that were ever in use; every array is at least this long.
        valid, unschedulable: one bool a row.
        cpu_total … pods_total: what the node offers (int64).
        cpu_used … pods_used, cpu_nonzero, memory_nonzero: what its pods need (int64).
        taint_set: index into ``taint_sets``.
        rows: row by node name.
        names: node name by row; empty in an invalid row.
        images: the images that nodes have, by name; kept current by whoever fills the table.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.size = 0
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.images: Mapping[str, Image] = {}
        self.scalars: dict[str, ScalarColumn] = {}
        self.taint_sets: list[tuple[Taint, ...]] = []
        self.holders: dict[tuple[str, int], dict[int, None]] = {}
        self._taint_numbers: dict[tuple[tuple[str, str, str], ...], int] = {}
        self._labels: dict[str, LabelColumn] = {}
        self._row_labels: list[Mapping[str, str]] = []
        self._row_totals: list[Resources] = []
        self._row_usage: list[Usage] = []
        self._free: list[int] = []
        self.valid: Mask = np.zeros(capacity, np.bool_)
        self.unschedulable: Mask = np.zeros(capacity, np.bool_)
        self.taint_set: Ids = np.zeros(capacity, np.int32)
        self.cpu_total: Integers = np.zeros(capacity, np.int64)
        self.memory_total: Integers = np.zeros(capacity, np.int64)
        self.ephemeral_total: Integers = np.zeros(capacity, np.int64)
        self.pods_total: Integers = np.zeros(capacity, np.int64)
        self.cpu_used: Integers = np.zeros(capacity, np.int64)
        self.memory_used: Integers = np.zeros(capacity, np.int64)
        self.ephemeral_used: Integers = np.zeros(capacity, np.int64)
        self.pods_used: Integers = np.zeros(capacity, np.int64)
        self.cpu_nonzero: Integers = np.zeros(capacity, np.int64)
        self.memory_nonzero: Integers = np.zeros(capacity, np.int64)

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
        """Write what the node object says into its row, a new one for a new name.

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
        names = {**self._row_totals[row].scalars, **allocatable.scalars}
        for scalar in names:
            self._scalar(scalar).total[row] = allocatable.scalars.get(scalar, 0)
        self._row_totals[row] = allocatable
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
        if old is usage or old == usage:
            return False
        self._row_usage[row] = usage
        try:
            self._write_usage(row, usage)
        except OverflowError:  # only a flood of absurd pods bound by hand gets here
            self._write_usage(row, _clamped(usage))
        if old.scalars or usage.scalars:
            for scalar in {**old.scalars, **usage.scalars}:
                used = min(usage.scalars.get(scalar, 0), _AMOUNT_LIMIT)
                self._scalar(scalar).used[row] = used
        if old.ports is not usage.ports:
            self._hold(row, old.ports, usage.ports)
        return True

    def _write_usage(self, row: int, usage: Usage) -> None:
        self.cpu_used[row] = usage.cpu_milli
        self.memory_used[row] = usage.memory_bytes
        self.ephemeral_used[row] = usage.ephemeral_bytes
        self.pods_used[row] = usage.pods
        self.cpu_nonzero[row] = usage.nonzero_cpu_milli
        self.memory_nonzero[row] = usage.nonzero_memory_bytes

    def remove(self, name: str) -> None:
        """Free the node's row.

        Raises:
            KeyError: no such node.
        """
        row = self.rows.pop(name)
        self.put_usage(row, IDLE)
        for scalar in self._row_totals[row].scalars:
            self._scalar(scalar).total[row] = 0
        self._row_totals[row] = Resources()
        self._row_labels[row] = _NO_LABELS
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
            self._row_totals.append(Resources())
            self._row_usage.append(IDLE)
        self.rows[name] = row
        return row

    def _taint_number(self, taints: tuple[Taint, ...]) -> int:
        key = tuple((taint.key, taint.value, taint.effect) for taint in taints)
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

    def _hold(self, row: int, old: UsedPorts, new: UsedPorts) -> None:
        for port in _gone(old, new):
            rows = self.holders[port]
            rows.pop(row, None)
            if not rows:
                del self.holders[port]
        for port in _gone(new, old):
            self.holders.setdefault(port, {})[row] = None

    # --- reading -----------------------------------------------------------------------------

    def labels(self, key: str) -> LabelColumn:
        """The column of a label key, built now if nobody asked before."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = self._build_labels(key)
        return column

    def ports(self, row: int) -> UsedPorts:
        """The host ports held on the row's node."""
        return self._row_usage[row].ports if row < self.size else NO_PORTS

    def _build_labels(self, key: str) -> LabelColumn:
        column = LabelColumn(np.full(self.capacity, ABSENT, np.int32))
        for row, labels in enumerate(self._row_labels):
            value = labels.get(key)
            if value is not None:
                column.ids[row] = column.number(value)
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


def _gone(old: Iterable[HostPort], new: Iterable[HostPort]) -> dict[tuple[str, int], None]:
    kept = {(port.protocol, port.port) for port in new}
    found = ((port.protocol, port.port) for port in old)
    return {item: None for item in found if item not in kept}
