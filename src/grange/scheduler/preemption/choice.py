"""Which node to preempt on, when several would do: level by level until one is left."""

from collections.abc import Sequence
from operator import attrgetter

from grange.scheduler.preemption.victims import Victims

_rank = attrgetter("rank")


def pick_one(candidates: Sequence[Victims]) -> Victims:
    """The best by ``Victims.rank``; among equals the first.

    Args:
        candidates: at least one, in the order in which they were found.
    """
    return min(candidates, key=_rank)
