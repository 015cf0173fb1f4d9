"""The node table: one row a node, one array a quantity.

Rows are stable: a node keeps its row until it is removed, and freed rows are used again. Arrays
double when full. Labels become integer columns on demand, one for every key that some selector
asks about; sets of taints are interned, since nodes share few. A row is *valid* while a node is in
it; the other arrays mean nothing in an invalid row.

What pods use changes with every placement, and most placements are followed by no look at all rows.
So the rows whose usage changed are noted, and their columns are written when one is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grange.api.kinds.node import Node, Taint
from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from grange.placement.node_usage import IDLE, Usage, amount_of

Integers: TypeAlias = NDArray[np.int64]
Ids: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = slice | Integers

_NO_LABELS: Mapping[str, str] = {}
ABSENT = -1
_AMOUNT_LIMIT = 2**62  # only a flood of absurd pods that are bound by hand gets there

_AMOUNTS: Mapping[str, Callable[[Usage], int]] = {
    CPU: attrgetter("cpu_milli"),
    MEMORY: attrgetter("memory_bytes"),
    EPHEMERAL_STORAGE: attrgetter("ephemeral_bytes"),
    PODS: attrgetter("pods"),
}
_NONZERO: Mapping[str, Callable[[Usage], int]] = {
    CPU: attrgetter("nonzero_cpu_milli"),
    MEMORY: attrgetter("nonzero_memory_bytes"),
}


def _limited(amounts: list[int]) -> Integers:
    try:
        return np.array(amounts, np.int64)
    except OverflowError:
        return np.array([min(amount, _AMOUNT_LIMIT) for amount in amounts], np.int64)


@dataclass(slots=True)
class LabelColumn:
    """One label key over all rows.

    Attributes:
        ids: the number of each row's value; ``ABSENT`` where the label is missing.
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


class Image(Protocol):
    """An image that some nodes have.

    Attributes:
        nodes: their names.
    """

    nodes: dict[str, None]

    @property
    def share(self) -> int:
        """What having it is worth."""


class NodeTable:
    """The table. Not shared between owners; readers must not write to the arrays.

    Attributes:
        size: rows that were ever in use; every array is at least this long.
        valid, unschedulable: one bool a row.
        taint_set: index into ``taint_sets``.
        names: node name by row; empty in an invalid row.
        images: the images that nodes have, by name; kept current by the owner of the table.
        entries: what the owner of the table has of each row's node.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.size = 0
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.images: Mapping[str, Image] = {}
        self.entries: list[Any] = []
        self.taint_sets: list[tuple[Taint, ...]] = []
        self._taint_numbers: dict[tuple[tuple[str, str, str], ...], int] = {}
        self._labels: dict[str, LabelColumn] = {}
        self._row_labels: list[Mapping[str, str]] = []
        self._row_usage: list[Usage] = []
        self._free: list[int] = []
        self._unwritten: dict[int, None] = {}
        self.valid: Mask = np.zeros(capacity, np.bool_)
        self.unschedulable: Mask = np.zeros(capacity, np.bool_)
        self.taint_set: Ids = np.zeros(capacity, np.int32)
        # By resource: what the nodes offer, what their pods need, and what scoring assumes of these.
        self._total: dict[str, Integers] = {}
        self._used: dict[str, Integers] = {}
        self._nonzero: dict[str, Integers] = {}
        for name in (CPU, MEMORY):
            self._nonzero[name] = np.zeros(capacity, np.int64)
        for name in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS):
            self._add_resource(name)

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

    def _add_resource(self, name: str) -> None:
        if name not in self._total:
            self._total[name] = np.zeros(self.capacity, np.int64)
            self._used[name] = np.zeros(self.capacity, np.int64)

    def _grow(self) -> None:
        extra = max(64, self.capacity)

        def longer(column: NDArray[Any], filled: int = 0) -> NDArray[Any]:
            return np.concatenate([column, np.full(extra, filled, column.dtype)])

        self.valid, self.unschedulable = longer(self.valid), longer(self.unschedulable)
        self.taint_set = longer(self.taint_set)
        for columns in (self._total, self._used, self._nonzero):
            columns.update({name: longer(column) for name, column in columns.items()})
        for label in self._labels.values():
            label.ids = longer(label.ids, ABSENT)

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
        for name in allocatable.scalars:
            self._add_resource(name)
        for name, total in self._total.items():
            total[row] = allocatable.pods if name == PODS else amount_of(allocatable, name)
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
        for name in usage.scalars:
            self._add_resource(name)
        return True

    def _write(self) -> None:
        """Write the rows column by column: for thousands, a third of the time of a row at a time."""
        if not self._unwritten:
            return
        rows = np.array([*self._unwritten])
        used = [self._row_usage[row] for row in self._unwritten]
        for name, column in self._used.items():
            read = _AMOUNTS.get(name)
            amounts = (
                [usage.scalars.get(name, 0) for usage in used] if read is None else map(read, used)
            )
            column[rows] = _limited([*amounts])
        for name, nonzero in self._nonzero.items():
            nonzero[rows] = _limited([*map(_NONZERO[name], used)])
        self._unwritten.clear()

    def remove(self, name: str) -> None:
        """Free the node's row.

        Raises:
            KeyError: no such node.
        """
        row = self.rows.pop(name)
        self.put_usage(row, IDLE)
        for total in self._total.values():
            total[row] = 0  # some look for a resource that no node offers
        self._row_labels[row] = _NO_LABELS
        self.entries[row] = None
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
            self.entries.append(None)
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

    def amounts(self, name: str, rows: Rows, *, nonzero: bool = False) -> tuple[Integers, Integers]:
        """What the rows' nodes offer of a resource, and how much of it is in use.

        Args:
            name: of the resource; CPU in thousandths, the others in whole numbers.
            rows: which.
            nonzero: in use as scoring sees it.
        """
        if self._unwritten:
            self._write()
        total = self._total.get(name)
        if total is None:
            nothing: Integers = np.zeros(len(self.valid[rows]), np.int64)
            return nothing, nothing
        used = self._nonzero if nonzero and name in self._nonzero else self._used
        return total[rows], used[name][rows]

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
