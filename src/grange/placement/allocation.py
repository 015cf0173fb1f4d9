"""How well a node's resources would be used: the strategies of NodeResourcesFit, and balance.

One node and rows of the table get the same integers. The formulas and their order of operations are
those of kube-scheduler: a resource that the node does not have is left out, and so is an extended one
that the pod does not ask for; CPU and memory are taken in the non-zero view (what a pod leaves unsaid
counts as a small default), except for balance, which takes real requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from grange.api.pod_requests import CPU, MEMORY, PODS, PodRequest, Resources, is_scalar
from grange.placement.columns import Integers, NodeTable, Rows
from grange.placement.node_usage import Usage, amount_of
from grange.placement.resource_fit import MAX_SCORE

_FULL = 100  # utilisation, in percent
_Largest = Callable[[Any, Any], Any]
"""``max``, for amounts of one node or for columns of them."""


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """A resource that counts, and how much."""

    name: str
    weight: int


CPU_AND_MEMORY = (ResourceWeight(CPU, 1), ResourceWeight(MEMORY, 1))


# --- how much of a resource a node has and would have in use ---------------------------------------


def asked(name: str, request: PodRequest, *, nonzero: bool) -> int:
    """How much of a resource the pod asks for, as seen when fitting or (non-zero) when scoring."""
    if nonzero and name == CPU:
        return request.nonzero_cpu_milli
    if nonzero and name == MEMORY:
        return request.nonzero_memory_bytes
    return amount_of(request.resources, name)


def _node(name: str, offered: Resources, usage: Usage, *, nonzero: bool) -> tuple[int, int]:
    total = amount_of(offered, name)
    if nonzero and name == CPU:
        return total, usage.nonzero_cpu_milli
    if nonzero and name == MEMORY:
        return total, usage.nonzero_memory_bytes
    return total, amount_of(usage, name)


def _rows(name: str, table: NodeTable, rows: Rows, *, nonzero: bool) -> tuple[Integers, Integers]:
    if name == PODS:  # no plugin scores by it
        return 2 * (np.zeros(len(table.valid[rows]), np.int64),)
    return table.amounts(name, rows, nonzero=nonzero)


def _counts(name: str, wanted: int) -> bool:
    """An extended resource that the pod does not ask for does not count."""
    return wanted > 0 or not is_scalar(name)


# --- strategies ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strategy(ABC):
    """A score by utilisation: the weighted mean over resources, 0 to 100.

    A formula is stated once, for the amounts of one node and for columns of them.
    """

    resources: tuple[ResourceWeight, ...]

    @abstractmethod
    def one(self, left: Any, total: Any) -> Any:
        """The score of one resource: what would be left, 0 where it is exceeded, of a positive total."""

    def mean(self, scores: Sequence[Any], weights: Sequence[Any], largest: _Largest) -> Any:
        """Of the resources; those that the node does not have weigh 0."""
        return _weighted(scores, weights) // largest(sum(weights), 1)

    def score(self, request: PodRequest, offered: Resources, usage: Usage) -> int:
        """The score of a node for a pod."""
        return int(self._mean(request, lambda name: _node(name, offered, usage, nonzero=True), max))

    def score_rows(self, request: PodRequest, table: NodeTable, rows: Rows) -> Integers:
        """The scores of rows for a pod."""
        found = self._mean(request, lambda name: _rows(name, table, rows, nonzero=True), np.maximum)
        return found if np.ndim(found) else np.zeros(len(table.valid[rows]), np.int64)

    def _mean(
        self, request: PodRequest, read: Callable[[str], tuple[Any, Any]], largest: _Largest
    ) -> Any:
        scores, weights = [], []
        for resource in self.resources:
            wanted = asked(resource.name, request, nonzero=True)
            if _counts(resource.name, wanted):
                total, used = read(resource.name)
                left = largest(total - used - wanted, 0)
                scores.append(self.one(left, largest(total, 1)))
                weights.append(resource.weight * (total > 0))
        return self.mean(scores, weights, largest)


def _weighted(scores: Sequence[Any], weights: Sequence[Any]) -> Any:
    return sum([score * weight for score, weight in zip(scores, weights, strict=True)])


class LeastAllocated(Strategy):
    """The share that would be left: ``(total - after) * 100 / total``, 0 where it is exceeded."""

    def one(self, left: Any, total: Any) -> Any:
        """The score of one resource."""
        return left * MAX_SCORE // total


class MostAllocated(Strategy):
    """The share that would be in use: ``after * 100 / total``, 100 where it is exceeded."""

    def one(self, left: Any, total: Any) -> Any:
        """The score of one resource."""
        return (total - left) * MAX_SCORE // total


@dataclass(frozen=True)
class RequestedToCapacityRatio(Strategy):
    """A broken line through given points over utilisation in percent.

    Resources that score 0 are left out of the mean, and the mean is rounded, not truncated.

    Attributes:
        shape: utilisation (percent, strictly increasing) and score (0 to 100) of each point.
    """

    shape: tuple[tuple[int, int], ...]

    @cached_property
    def line(self) -> Integers:
        """The score of each whole percent, 0 to 100."""
        return np.asarray([self._at(percent) for percent in range(_FULL + 1)], np.int64)

    def _at(self, percent: int) -> int:
        before = self.shape[0]
        for point in self.shape:
            if percent <= point[0]:
                if point is self.shape[0]:
                    return point[1]
                step = (point[1] - before[1]) * (percent - before[0])
                run = point[0] - before[0]
                # Division truncates towards zero, also downhill.
                return before[1] + (step // run if step >= 0 else -(-step // run))
            before = point
        return before[1]

    def one(self, left: Any, total: Any) -> Any:
        """The score of one resource."""
        return self.line[(total - left) * _FULL // total]

    def mean(self, scores: Sequence[Any], weights: Sequence[Any], largest: _Largest) -> Any:
        """Of those that score."""
        whole = _weighted([score > 0 for score in scores], weights)
        return (2 * _weighted(scores, weights) + whole) // largest(2 * whole, 1)


# --- balance -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """How to compute with amounts of one node, or with columns of them."""

    least: Callable[[Any, Any], Any]
    largest: _Largest
    truncated: Callable[[Any], Any]


_SCALAR = _Arithmetic(min, max, int)
_COLUMNS = _Arithmetic(np.minimum, np.maximum, lambda score: np.asarray(score).astype(np.int64))


def balanced(names: Sequence[str], request: PodRequest, offered: Resources, usage: Usage) -> int:
    """Whether the pod evens out the use of these resources: 75 changes nothing, more is better."""
    return int(
        _balanced(names, request, lambda name: _node(name, offered, usage, nonzero=False), _SCALAR)
    )


def balanced_rows(
    names: Sequence[str], request: PodRequest, table: NodeTable, rows: Rows
) -> Integers:
    """The same for many."""
    found = _balanced(
        names, request, lambda name: _rows(name, table, rows, nonzero=False), _COLUMNS
    )
    return found if np.ndim(found) else np.full(len(table.valid[rows]), found, np.int64)


def _balanced(
    names: Sequence[str],
    request: PodRequest,
    read: Callable[[str], tuple[Any, Any]],
    arithmetic: _Arithmetic,
) -> Any:
    before, after, present = [], [], []
    for name in names:
        wanted = asked(name, request, nonzero=False)
        if _counts(name, wanted):
            total, used = read(name)
            safe = arithmetic.largest(total, 1)
            present.append(total > 0)
            before.append(arithmetic.least(1.0, used / safe))
            after.append(arithmetic.least(1.0, (used + wanted) / safe))
    gain = _balance(after, present, arithmetic) - _balance(before, present, arithmetic)
    return 50 + (50 + gain) // 2


def _balance(fractions: Sequence[Any], present: Sequence[Any], arithmetic: _Arithmetic) -> Any:
    """How alike the fractions are, 0 to 100: 100 less their standard deviation."""
    spread: Any = 0.0
    if len(fractions) == 2:  # the default resources
        spread = abs((fractions[0] - fractions[1]) / 2) * (present[0] & present[1])
    elif len(fractions) > 2:
        number = sum(present)
        safe = arithmetic.largest(number, 1)
        mean = _in_order(fractions, present) / safe
        squares = [(one - mean) * (one - mean) for one in fractions]
        spread = np.sqrt(_in_order(squares, present) / safe)
        # Of two values the standard deviation is half their distance.
        pairs = [*zip(fractions, present, strict=True)]
        low = reduce(arithmetic.least, [one + 2.0 * (1 - there) for one, there in pairs])
        high = reduce(arithmetic.largest, [one * there for one, there in pairs])
        spread = (number == 2) * ((high - low) / 2) + (number != 2) * spread
    return arithmetic.truncated((1.0 - spread) * MAX_SCORE)


def _in_order(numbers: Sequence[Any], present: Sequence[Any]) -> Any:
    # Not sum(): newer Pythons compensate its rounding for one node, and numpy does not for many.
    total: Any = 0.0
    for number, there in zip(numbers, present, strict=True):
        total = total + number * there
    return total
