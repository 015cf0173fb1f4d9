"""Candidates: on which nodes to look for victims, and when enough have been found.

Looking at every node of a large cluster costs more than the best of all nodes is worth, so the
search starts somewhere and stops when it has a share of them; but it goes on until one is found
that breaks no disruption budget, if there is any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from grange.placement.columns import Integers
from grange.scheduler.framework import Status
from grange.scheduler.preemption.victims import Victims

T = TypeVar("T")

UNKNOWN, NOBODY, BREAKING, HARMLESS = range(4)  # what is known of a row
_STEP = 64  # rows at a time, when few more are wanted


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """How many candidates are enough.

    Attributes:
        min_percentage: of the nodes where preemption might help.
        min_absolute: at least so many, where there are so many.
    """

    min_percentage: int = 10
    min_absolute: int = 100

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 0 <= self.min_percentage <= 100:
            raise ValueError("minCandidateNodesPercentage must be in the range 0 to 100")
        if self.min_absolute < 0:
            raise ValueError("minCandidateNodesAbsolute must be at least 0")
        if not self.min_percentage and not self.min_absolute:
            raise ValueError(
                "minCandidateNodesPercentage and minCandidateNodesAbsolute must not both be 0"
            )

    def wanted(self, nodes: int) -> int:
        """How many of so many nodes are enough."""
        return min(nodes, max(nodes * self.min_percentage // 100, self.min_absolute))


def dry_run(
    nodes: Sequence[T], wanted: int, judge: Callable[[T], Victims | Status]
) -> list[Victims]:
    """The candidates: first those that break no budget, then the others, as they were found.

    Args:
        nodes: the nodes where preemption might help, in the order in which they are tried.
        wanted: how many candidates are enough.
        judge: the victims on a node, or why there are none.
    """
    harmless: list[Victims] = []
    others: list[Victims] = []
    for node in nodes:
        found = judge(node)
        if isinstance(found, Status):
            continue
        (others if found.violations else harmless).append(found)
        if harmless and len(harmless) + len(others) >= wanted:
            break
    return harmless + others


def first_candidates(
    states: NDArray[np.int8], order: Integers, wanted: int, judge: Callable[[int], None]
) -> Integers:
    """The same candidates as ``dry_run`` from what is known by row, in the order of the rows.

    Args:
        states: what is known of each row.
        order: rows in the order in which they are tried.
        wanted: how many candidates are enough.
        judge: finds out about a row that is unknown. It may be asked about a few rows more than
            needed, which is not lost where what it finds is kept.
    """
    parts: list[Integers] = []
    count, at, harmless = 0, 0, False
    while at < len(order):
        rows = order[at : at + max(_STEP, wanted - count)]
        at += len(rows)
        seen = states[rows]
        if not seen.all():
            for row in rows[seen == UNKNOWN].tolist():
                judge(row)
            seen = states[rows]
        places = (seen >= BREAKING).nonzero()[0]
        least = wanted - count
        if not harmless:
            good = (seen == HARMLESS).nonzero()[0]
            harmless = bool(len(good))
            if harmless:  # everybody up to the first such one is looked at in any case
                least = max(least, int(places.searchsorted(good[0])) + 1)
        if harmless and len(places) >= least:
            parts.append(rows[places[:least]])
            break
        parts.append(rows[places])
        count += len(places)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
