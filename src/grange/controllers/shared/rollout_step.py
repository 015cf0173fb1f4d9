"""How many replicas to move from the old side of a rollout to the new one. Pure.

Theory of operation. A rollout has two sides: pods of earlier templates and pods of the new one (or
two controllers). Each side has a *desired* count; a step moves part of it. ``shift`` is the step of
the specification of replication (§4c): as many pods are put at risk at a time as are healthy beyond
the minimum, so a new template that never becomes healthy costs at most that many. ``step`` adds what
both sides lack, surge, scaling meanwhile, canaries, pausing (the goal is the present state), and old
pods that are known to be broken.

What holds after every step, whatever the counts: healthy pods taken away on purpose never leave
fewer than ``minimum`` healthy ones, and the desired counts together never rise above ``ceiling``.
Pods whose health is unknown, missing or stale are not healthy. A step must be carried out by
deleting the unhealthy pods of a side first.
"""

from dataclasses import dataclass
from enum import Enum

from grange.api.kinds.rollingupdate import Counts


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a rollout.

    Attributes:
        desired: wanted pods.
        healthy: pods that are known to be healthy now.
        broken: pods that are known not to be ready, and missing ones.
        idle: pods that are not bound.
    """

    desired: int
    healthy: int = 0
    broken: int = 0
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Goal:
    """The end of a rollout, and its limits.

    Attributes:
        target: pods of both sides in the end.
        updated: pods of the new side in the end; less than ``target`` for a canary.
        minimum: healthy pods that no step may go below.
        ceiling: desired pods of both sides that no step may go above, if they are not there yet.
    """

    target: int
    updated: int
    minimum: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class ReplicaShift:
    """Replicas to take from the old side and to give to the new one."""

    remove: int = 0
    add: int = 0


class Verdict(Enum):
    """Whether a rollout between two controllers goes on."""

    CONTINUE = "continue"
    BLOCK = "wait for pods"
    DONE = "done"


def shift(
    old: Side, new: Side, *, target: int, minimum: int, ceiling: int | None = None
) -> ReplicaShift:
    """One step from old to new, whose target are the desired pods of the new side in the end.

    Specification of replication, §4c. Room below the ceiling (of both sides; the target, unless there is surge) is
    filled without removing anything. Beyond that, every pod that is added takes the place of one that is removed.
    """
    remaining = target - new.desired
    if remaining <= 0:
        return ReplicaShift()
    old_healthy, new_healthy = min(old.healthy, old.desired), min(new.healthy, new.desired)
    total = old.desired + new.desired
    increase = max(0, (target if ceiling is None else ceiling) - total)
    if new_healthy >= minimum:
        add = remaining
    else:
        add = min(remaining, old_healthy + new_healthy - minimum + increase + old.broken)
    if add <= 0:
        return ReplicaShift()
    return ReplicaShift(remove=min(old.desired, max(0, add - increase)), add=add)


def verdict(*, new_desired: int, new_current: int, target: int) -> Verdict:
    """Whether a rollout goes on, waits for pods to exist, or is over.

    Health is not asked: a rollout to a template that is known to be bad, with minimum zero, ends.
    """
    if new_desired < target:
        return Verdict.CONTINUE
    return Verdict.DONE if new_current >= target else Verdict.BLOCK


def step(old: Side, new: Side, goal: Goal) -> Counts:
    """The desired counts after the next step; the same ones when there is nothing to do now."""
    updated = min(goal.updated, goal.target)
    idle = max(0, min(old.idle, old.desired, updated - new.desired))
    old = Side(old.desired - idle, min(old.healthy, old.desired - idle), max(0, old.broken - idle))
    new = Side(new.desired + idle, min(new.healthy, new.desired), new.broken + idle)
    old = _shed(old, new, old.desired + new.desired - goal.ceiling, goal)
    new = _filled(new, old, goal, updated)
    move = shift(old, new, target=updated, minimum=goal.minimum, ceiling=goal.ceiling)
    old = _without(old, move.remove)
    new = Side(new.desired + move.add, new.healthy, new.broken + move.add)
    rest = goal.target - updated  # of the old side, in the end
    if new.desired < updated:
        return Counts(old.desired, new.desired)
    old = _shed(old, new, old.desired - rest, goal)
    new = _shed(new, old, new.desired - updated, goal)
    room = goal.ceiling - old.desired - new.desired
    return Counts(old.desired + max(0, min(rest - old.desired, room)), new.desired)


def _filled(new: Side, old: Side, goal: Goal, updated: int) -> Side:
    """The new side with what both sides lack of the target, which puts nothing at risk."""
    lack = min(goal.target, goal.ceiling) - old.desired - new.desired
    more = max(0, min(lack, updated - new.desired))
    return Side(new.desired + more, new.healthy, new.broken + more)


def _without(side: Side, count: int) -> Side:
    """The side without so many pods: broken ones first, then unknown ones, then healthy ones."""
    left = side.desired - count
    return Side(left, min(side.healthy, left), max(0, side.broken - count))


def _shed(side: Side, other: Side, surplus: int, goal: Goal) -> Side:
    """The side without its surplus, as far as the minimum allows.

    A pod of unknown health may be healthy: it is removed only while enough others are.
    """
    spare = side.healthy + other.healthy - goal.minimum
    allowed = side.broken if spare < 0 else side.desired - side.healthy + spare
    return _without(side, max(0, min(surplus, side.desired, allowed)))
