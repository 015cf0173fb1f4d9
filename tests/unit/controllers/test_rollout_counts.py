"""How many replicas move: checks U1, U2, U3, U5 and U7 of the specification of replication.

U5 is the fuzz: 20,000 random rollouts in each of two modes, here in full, because the planner is
fast enough. Removals are counted as the specification's examples write them: removed/added.
"""

import pytest

from grange.api.kinds.rollingupdate import Counts
from grange.base.rng import Stream
from grange.controllers.shared import rollout_step
from grange.controllers.shared.rollout_step import Goal, ReplicaShift, Side, Verdict

FUZZ_RUNS = 20_000


def shift(
    old: int | tuple[int, int], new: int | tuple[int, int], target: int, minimum: int
) -> tuple[int, int]:
    """Removed and added; a side is its desired count, all healthy, or (desired, healthy)."""
    sides = [Side(*side) if isinstance(side, tuple) else Side(side, side) for side in (old, new)]
    move = rollout_step.shift(*sides, target=target, minimum=minimum)
    return move.remove, move.add


@pytest.mark.parametrize(
    ("old", "new", "target", "minimum", "expected"),
    [
        ((3, 1), 0, 3, 2, (0, 0)),  # below the minimum
        ((3, 2), 0, 3, 2, (0, 0)),  # at the minimum
        (0, 3, 3, 2, (0, 0)),  # done
        (1, 3, 3, 2, (0, 0)),  # done, what is left is not its business
        (3, 0, 3, 2, (1, 1)),  # the difference to the minimum
        (10, 0, 10, 7, (3, 3)),
        (1, 2, 3, 2, (1, 1)),  # the new side alone meets the minimum: all that remains
        (5, 5, 10, 4, (5, 5)),
        (3, 0, 3, 0, (3, 3)),  # minimum zero: all
        (3, (2, 0), 3, 2, (1, 1)),  # the target counts what is desired, not what is healthy
        (1, (3, 0), 3, 0, (0, 0)),
        (0, 0, 3, 2, (0, 1)),  # from nothing: the difference
        (0, 0, 3, 0, (0, 3)),  # from nothing, minimum zero: all
        (3, 0, 4, 2, (1, 2)),  # growing on the way
        (3, 0, 4, 3, (0, 1)),
    ],
)
def test_check_u1_the_step_of_the_specification(
    old: int, new: int, target: int, minimum: int, expected: tuple[int, int]
) -> None:
    assert shift(old, new, target, minimum) == expected


@pytest.mark.parametrize(
    ("desired", "current", "target", "expected"),
    [
        (0, 0, 3, Verdict.CONTINUE),
        (2, 3, 3, Verdict.CONTINUE),
        (3, 3, 3, Verdict.DONE),
        (3, 4, 3, Verdict.DONE),
        (1, 1, 1, Verdict.DONE),  # a canary
        (1, 0, 1, Verdict.BLOCK),
        (3, 2, 3, Verdict.BLOCK),
    ],
)
def test_check_u2_when_a_rollout_goes_on_waits_and_ends(
    desired: int, current: int, target: int, expected: Verdict
) -> None:
    found = rollout_step.verdict(new_desired=desired, new_current=current, target=target)
    assert found is expected


def test_check_u3_no_more_old_pods_are_healthy_than_are_desired() -> None:
    """A pod that is about to go may still look healthy."""
    assert shift((2, 5), 0, 3, 2) == shift((2, 2), 0, 3, 2)
    assert shift((2, 5), (1, 4), 3, 2) == shift((2, 2), (1, 1), 3, 2)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((3, 3), (0, 0), (1, 1)),  # initial
        ((3, 0), (0, 0), (0, 0)),  # nothing is known
        ((2, 2), (1, 0), (0, 0)),  # half way, the new one is not healthy
        ((2, 2), (1, 1), (1, 1)),  # half way, it is
        ((2, 0), (1, 1), (0, 0)),  # half way, nothing is known of the old ones
        ((1, 2), (2, 1), (0, 0)),  # more old ones look healthy than are wanted
        ((1, 2), (2, 2), (1, 1)),
        ((0, 0), (0, 0), (0, 1)),  # from nothing
        ((0, 0), (1, 0), (0, 0)),
        ((0, 0), (1, 1), (0, 1)),
        ((0, 0), (2, 2), (0, 1)),
    ],
)
def test_check_u7_a_step_is_decided_by_what_is_healthy_now(
    old: tuple[int, int], new: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Three replicas, minimum two."""
    assert shift(old, new, 3, 2) == expected


def test_check_u7_new_side_at_the_minimum_gets_all_remaining() -> None:
    assert shift((2, 2), (3, 2), 5, 2) == (2, 2)


# --- what the specification's step does not have -------------------------------------------------


def test_w19_a_rollout_that_shrinks_gets_rid_of_old_replicas() -> None:
    """In P2 a target below the old count left the rollout waiting forever."""
    assert rollout_step.step(Side(5, 5), Side(0), Goal(3, 3, 2, 3)) == Counts(old=2, new=1)
    assert rollout_step.step(Side(1, 1), Side(3, 3), Goal(3, 3, 2, 3)) == Counts(old=0, new=3)


def test_make_before_break_for_a_single_replica() -> None:
    goal = Goal(target=1, updated=1, minimum=1, ceiling=2)
    assert rollout_step.step(Side(1, 1), Side(0), goal) == Counts(1, 1)
    assert rollout_step.step(Side(1, 1), Side(1, 0), goal) == Counts(1, 1)
    assert rollout_step.step(Side(1, 1), Side(1, 1), goal) == Counts(0, 1)


def test_a_canary_stops_at_its_count_and_the_rest_stays_old() -> None:
    goal = Goal(target=10, updated=2, minimum=10, ceiling=12)
    assert rollout_step.step(Side(10, 10), Side(0), goal) == Counts(10, 2)
    assert rollout_step.step(Side(10, 10), Side(2, 2), goal) == Counts(8, 2)
    assert rollout_step.step(Side(8, 8), Side(2, 2), goal) == Counts(8, 2)


def test_a_canary_that_is_lowered_gives_its_place_back() -> None:
    goal = Goal(target=3, updated=1, minimum=2, ceiling=3)
    assert rollout_step.step(Side(1, 1), Side(2, 2), goal) == Counts(2, 1)


def test_paused_growth_is_of_old_template_and_surge_is_removed() -> None:
    """A goal that is where we are."""
    assert rollout_step.step(Side(3, 3), Side(1, 0), Goal(6, 1, 5, 7)) == Counts(5, 1)
    assert rollout_step.step(Side(3, 3), Side(1, 1), Goal(3, 1, 3, 4)) == Counts(2, 1)


def test_old_unavailable_pods_are_replaced_despite_few_healthy() -> None:
    """A fix must reach a service that is down."""
    assert rollout_step.step(Side(3, 0, broken=3), Side(0), Goal(3, 3, 2, 3)) == Counts(2, 1)
    assert rollout_step.step(Side(3, 0, broken=0), Side(0), Goal(3, 3, 2, 3)) == Counts(3, 0)


def test_old_pods_that_run_nowhere_are_swapped_at_once() -> None:
    side = Side(3, 0, broken=3, idle=3)
    assert rollout_step.step(side, Side(0), Goal(3, 3, 3, 3)) == Counts(0, 3)


# --- U5: every order of events ---------------------------------------------------------------------


SIDES = ("old", "new")


class Fleet:
    """Pods of both sides as counts, and everything that may happen to them and to what is wanted.

    ``overwrite``: what a step removes is gone and what it adds is there at once, as where a new pod
    takes the place of an old one. Otherwise (strict removal) pods come and go one by one, later.
    Nothing asks about the minimum then: removal of pods does as the step asked, those that are
    known to serve nothing first, those of which nothing is known next.
    """

    def __init__(self, rng: Stream, *, overwrite: bool) -> None:
        self.overwrite = overwrite
        self.draw = rng.integer
        self.surge = self.draw(0, 3)
        self.unavailable = self.draw(0 if self.surge else 1, 12)
        self.target = self.draw(0, 12)
        self.canary = self.draw(0, 12) if self.draw(0, 2) == 0 else None
        self.paused = False
        before = self.draw(0, 12)
        self.desired = Counts(before, 0)
        self.count = {"old": before, "new": 0}
        self.healthy = {"old": self.draw(0, before), "new": 0}
        self.unknown = {"old": self.draw(0, before - self.healthy["old"]), "new": 0}

    def goal(self) -> Goal:
        updated = self.target if self.canary is None else min(self.canary, self.target)
        if self.paused:
            updated = min(self.desired.new, self.target)
        minimum = max(0, self.target - self.unavailable)
        return Goal(self.target, updated, minimum, self.target + self.surge)

    def kept(self, side: str, desired: int) -> tuple[int, int]:
        """Healthy and unknown pods of a side once it has no more than are desired."""
        healthy = min(self.healthy[side], desired)
        return healthy, min(self.unknown[side], desired - healthy)

    def side(self, side: str) -> Side:
        desired = self.wanted(side)
        healthy, unknown = self.kept(side, desired)
        broken = desired - healthy - unknown
        idle = self.draw(0, broken) if broken and side == "old" and self.draw(0, 3) == 0 else 0
        seen = self.healthy[side]  # those that are about to go look healthy, too
        return Side(desired, seen, broken=broken, idle=idle)

    def plan(self) -> bool:
        old, new, goal, before = self.side("old"), self.side("new"), self.goal(), self.desired
        after = rollout_step.step(old, new, goal)
        seen = (old, new, goal, after)
        assert after.old >= 0, seen
        assert after.new >= 0, seen
        assert after.old + after.new <= max(before.old + before.new, goal.ceiling), seen
        assert after.new <= max(goal.updated, before.new), seen
        self.check_minimum(goal.minimum, before, after)
        self.desired = after
        if self.overwrite:
            self.settle()
        return after != before

    def check_minimum(self, minimum: int, before: Counts, after: Counts) -> None:
        """What has to go, now and from steps before, leaves the minimum, or puts nothing at risk."""
        was = [self.kept("old", before.old), self.kept("new", before.new)]
        now = [self.kept("old", after.old), self.kept("new", after.new)]
        healthy = sum(item[0] for item in now)
        assert healthy >= min(minimum, sum(item[0] for item in was)), "a step took what is needed"
        if healthy < minimum:
            unknown = sum(item[1] for item in now)
            assert unknown >= sum(item[1] for item in was), "a step took what may be healthy"

    def settle(self) -> None:
        for _ in range(100):
            if not any(self.remove(side) or self.make(side) for side in SIDES):
                return
        raise AssertionError("it never settles")

    def wanted(self, side: str) -> int:
        return self.desired.old if side == "old" else self.desired.new

    def remove(self, side: str) -> bool:
        """One pod too many goes."""
        if self.count[side] <= self.wanted(side):
            return False
        if self.count[side] == self.healthy[side]:
            self.healthy[side] -= 1
        elif self.count[side] == self.healthy[side] + self.unknown[side]:
            self.unknown[side] -= 1
        self.count[side] -= 1
        return True

    def make(self, side: str) -> bool:
        if self.count[side] >= self.wanted(side):
            return False
        self.count[side] += 1
        return True

    def happen(self) -> None:
        """One event, whichever: of a pod, another step, or another wish."""
        event = self.draw(0, 17)
        side = SIDES[event % 2]
        if event < 4:
            if self.healthy[side] + self.unknown[side] < self.count[side]:
                self.healthy[side] += 1
        elif event < 6:
            self.make(side)
        elif event < 8:
            self.remove(side)
        elif event < 10:
            if self.healthy[side]:
                self.healthy[side] -= 1
        elif event < 12:
            self.news(side)
        elif event == 12:
            self.wish()
        else:
            self.plan()

    def news(self, side: str) -> None:
        """Nothing is known any more of a healthy pod, or of one of them something is."""
        if self.healthy[side] and self.draw(0, 1):
            self.healthy[side] -= 1
            self.unknown[side] += 1
        elif self.unknown[side]:
            self.unknown[side] -= 1

    def wish(self) -> None:
        """A user pauses it, resumes it, scales it, or wants more canaries, or fewer."""
        what = self.draw(0, 2)
        if what == 0:
            self.paused = not self.paused
        elif what == 1:
            self.target = self.draw(0, 12)
        else:
            self.canary = self.draw(0, 12) if self.canary is None or self.draw(0, 2) else None

    def done(self) -> bool:
        goal = self.goal()
        old, new = goal.target - goal.updated, goal.updated
        return self.desired == Counts(old, new) and self.count == {"old": old, "new": new}

    def finish(self) -> None:
        """Nothing fails any more: it goes on at every turn until it is over, or at its canaries."""
        self.paused = False
        for _ in range(60):
            self.settle()
            self.healthy, self.unknown = dict(self.count), {"old": 0, "new": 0}
            if not self.plan():
                break
        self.settle()
        assert self.done(), (self.goal(), self.desired, self.count)
        assert not self.plan(), "over is over"


@pytest.mark.parametrize("overwrite", [True, False], ids=["overwrite", "strict removal"])
def test_check_u5_counts_keep_bounds_and_always_end(
    overwrite: bool,
) -> None:
    """While pods come, go, fail and are lost sight of; paused, scaled and with canaries as well."""
    rng = Stream(5)
    for _ in range(FUZZ_RUNS):
        fleet = Fleet(rng, overwrite=overwrite)
        for _ in range(fleet.draw(0, 30)):
            fleet.happen()
        fleet.finish()


def test_a_move_of_nothing_is_the_default() -> None:
    assert ReplicaShift() == ReplicaShift(remove=0, add=0)


def test_replica_missing_on_both_sides_is_made_anyway() -> None:
    """Else it is not made, where the minimum waits for it: found by a simulation's seed 598."""
    assert rollout_step.step(Side(0), Side(2, 2), Goal(3, 3, 3, 3)) == Counts(old=0, new=3)
    assert rollout_step.step(Side(1, 1), Side(1, 1), Goal(3, 3, 3, 3)) == Counts(old=1, new=2)
    assert rollout_step.step(Side(1, 1), Side(1, 1), Goal(3, 1, 3, 3)) == Counts(old=2, new=1)
