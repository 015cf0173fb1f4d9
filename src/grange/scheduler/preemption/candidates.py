"""Candidates: on which nodes to look for victims, and when enough have been found.

Looking at every node of a large cluster costs more than the best of all nodes is worth, so the
search starts somewhere and stops when it has a share of them; but it goes on until one is found
that violates no disruption budget, if there is any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grange.scheduler.framework import Status
from grange.scheduler.preemption.victims import Victims

T = TypeVar("T")

UNKNOWN, UNHELPFUL, VIOLATING, CLEAN = range(4)  # what is known of a node
_STEP = 64  # nodes at a time, when few more are wanted


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """How many candidates are enough.

    Attributes:
        min_percentage: of the nodes where preemption might help.
        min_absolute: at least so many, where there are so many.
    """

    min_percentage: int = 10
    min_absolute: int = 100

    def wanted(self, nodes: int) -> int:
        """How many of so many nodes are enough."""
        return min(nodes, max(nodes * self.min_percentage // 100, self.min_absolute))


def dry_run(
    nodes: Sequence[T], wanted: int, evaluate: Callable[[T], Victims | Status]
) -> list[Victims]:
    """The candidates: first those that violate no budget, then the others, as they were found.

    Args:
        nodes: the nodes where preemption might help, in the order in which they are tried.
        wanted: how many candidates are enough.
        evaluate: the victims on a node, or why there are none.
    """
    clean: list[Victims] = []
    others: list[Victims] = []
    for node in nodes:
        found = evaluate(node)
        if isinstance(found, Status):
            continue
        (others if found.violations else clean).append(found)
        if clean and len(clean) + len(others) >= wanted:
            break
    return clean + others


def first_candidates(
    states: bytearray, start: int, wanted: int, evaluate: Callable[[int], None]
) -> int:
    """How many places hold the same candidates as ``dry_run`` finds, from what is known by place.

    Args:
        states: what is known of each place; they stand in the order in which nodes are tried.
        start: where the search starts; after the last place comes the first.
        wanted: how many candidates are enough.
        evaluate: finds out about a place that is unknown. It may be called for a few more than
            needed, which is not lost where what it finds is kept.
    """
    size = len(states)
    looked = found = 0
    clean = 0  # how many places it takes to come by the first such one
    while looked < size:
        at = (start + looked) % size
        end = min(at + max(_STEP, wanted - found), size if at >= start else start)
        unknown = states.find(UNKNOWN, at, end)
        while unknown >= 0:
            evaluate(unknown)
            unknown = states.find(UNKNOWN, unknown + 1, end)
        if not clean:
            first = states.find(CLEAN, at, end)
            if first >= 0:
                clean = looked + first - at + 1
        here = end - at - states.count(UNHELPFUL, at, end)
        if clean and found + here >= wanted:
            return max(clean, looked + _stretch(states, at, end, wanted - found))
        found += here
        looked += end - at
    return looked


def _stretch(states: bytearray, at: int, end: int, wanted: int) -> int:
    """How many places from one on hold so many candidates; there are as many before the end."""
    low = max(0, wanted)
    high = end - at
    while low < high:
        middle = (low + high) // 2
        if middle - states.count(UNHELPFUL, at, at + middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low
