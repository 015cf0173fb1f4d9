"""How well a node's resources would be used: the strategies of NodeResourcesFit, and balance.

One node and rows of the table get the same integers. The formulas and their order of operations are
those of kube-scheduler: a resource that the node does not have is left out, and so is an extended one
that the pod does not ask for; CPU and memory are taken in the non-zero view (what a pod leaves unsaid
counts as a small default), except for balance, which takes real requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grange.api.pod_requests import CPU, MEMORY, PODS, PodRequest, Resources, is_scalar
from grange.placement.columns import Integers, Mask, NodeTable, Rows
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

    Attributes:
        resources: what counts.
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


def _balance(fractions: Sequence[float]) -> int:
    """How alike the fractions are, 0 to 100: 100 less their standard deviation."""
    spread = 0.0
    if len(fractions) == 2:
        spread = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = _in_order(fractions) / len(fractions)
        spread = sqrt(
            _in_order([(one - mean) * (one - mean) for one in fractions]) / len(fractions)
        )
    return int((1 - spread) * MAX_SCORE)


def _in_order(numbers: Sequence[float]) -> float:
    # Not sum(): newer Pythons compensate its rounding, which the vectorised form does not.
    total = 0.0
    for number in numbers:
        total = total + number
    return total


def balanced(names: Sequence[str], request: PodRequest, offered: Resources, usage: Usage) -> int:
    """Whether the pod evens out the use of these resources: 75 changes nothing, more is better."""
    before, after = [], []
    for name in names:
        wanted = asked(name, request, nonzero=False)
        total, used = _node(name, offered, usage, nonzero=False)
        if total and _counts(name, wanted):
            before.append(min(1.0, used / total))
            after.append(min(1.0, (used + wanted) / total))
    return 50 + (50 + _balance(after) - _balance(before)) // 2


def balanced_rows(
    names: Sequence[str], request: PodRequest, table: NodeTable, rows: Rows
) -> Integers:
    """The same for many."""
    before, after, present = [], [], []
    for name in names:
        wanted = asked(name, request, nonzero=False)
        if _counts(name, wanted):
            total, used = _rows(name, table, rows, nonzero=False)
            safe = np.maximum(total, 1).astype(np.float64)
            present.append(total > 0)
            before.append(np.minimum(1.0, used.astype(np.float64) / safe))
            after.append(np.minimum(1.0, (used + wanted).astype(np.float64) / safe))
    if not present:
        return np.full(len(table.valid[rows]), 75, np.int64)
    gain = _balances(after, present) - _balances(before, present)
    return 50 + (50 + gain) // 2


def _balances(fractions: Sequence[NDArray[np.float64]], there: Sequence[Mask]) -> Integers:
    if len(fractions) == 2:  # the default resources; the rest comes to the same, and takes longer
        spread = np.abs(fractions[0] - fractions[1]) / 2
        spread[~(there[0] & there[1])] = 0.0
    else:
        spread = _deviations(np.stack(fractions), np.stack(there))
    return ((1.0 - spread) * MAX_SCORE).astype(np.int64)


def _deviations(fractions: NDArray[np.float64], there: Mask) -> NDArray[np.float64]:
    number = there.sum(axis=0)
    safe = np.maximum(number, 1).astype(np.float64)
    total = np.zeros(fractions.shape[1], np.float64)
    # One resource after another, as the scalar form adds them; what is absent adds exactly 0.
    for one, has in zip(fractions, there, strict=True):
        total = total + np.where(has, one, 0.0)
    mean = total / safe
    squares = np.zeros(fractions.shape[1], np.float64)
    for one, has in zip(fractions, there, strict=True):
        squares = squares + np.where(has, (one - mean) * (one - mean), 0.0)
    spread = np.sqrt(squares / safe)
    # Of two values the standard deviation is half their distance.
    every = np.arange(fractions.shape[1])
    first = fractions[there.argmax(axis=0), every]
    last = fractions[len(there) - 1 - there[::-1].argmax(axis=0), every]
    spread = np.where(number == 2, np.abs((first - last) / 2), spread)
    return np.where(number < 2, 0.0, spread)
