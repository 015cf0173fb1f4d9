"""The scheduler dies at each of its requests, or loses there what it decides about; all is well in the end.

Each story runs once without a fault, and the scheduler's requests are counted; then once for
each request and side, with its death there, or with a node or a pod that is gone there. Seeds
pick tellings that are far apart; enough of them pick every one, and then the same on a slower
network, where requests overlap differently.
"""

from collections.abc import Sequence
from functools import cache
from math import gcd
from typing import TypeVar

import pytest
from tests.sim.scheduler_scenarios import STORIES, Ending, other_faults, run_story
from tests.support.scenarios import check_documented

from grange.base.log import Logger
from grange.sim import runner
from grange.sim.crashpoints import CrashPoint, every_point

ENOUGH = 1000
"""Seeds of ``make sim``."""

TURN = 3
"""How many faults besides death a seed runs."""

Case = TypeVar("Case")


@cache
def untroubled(name: str, lap: int) -> Ending:
    """The story without a fault."""
    return runner.run(run_story(name, lap, Logger("story")))


def points(name: str, lap: int) -> list[CrashPoint]:
    """Where something may happen in a story."""
    return [*every_point(len(untroubled(name, lap).asked))]


@cache
def deaths(lap: int) -> list[tuple[str, CrashPoint]]:
    """Every death in any story."""
    return [(name, point) for name in STORIES for point in points(name, lap)]


@cache
def losses(lap: int) -> list[tuple[str, str, CrashPoint]]:
    """Every other fault in any story."""
    return [
        (name, what, point)
        for name in STORIES
        for what in other_faults(name)
        for point in points(name, lap)
    ]


def pick(cases: Sequence[Case], place: int) -> Case:
    """One of them; those of places that follow each other are far apart."""
    size = len(cases)
    stride = next(n for n in range(int(size * 0.618), 2 * size) if gcd(n, size) == 1)
    return cases[place * stride % size]


def death(seed: int) -> tuple[int, str, CrashPoint]:
    """The lap, the story and the crash point of a seed."""
    lap, place = divmod(seed, len(deaths(0)))
    return (lap, *pick(deaths(lap), place))


def turn(seed: int) -> list[tuple[int, str, str, CrashPoint]]:
    """The laps, stories, faults and points of a seed."""
    found = []
    for number in range(seed * TURN, (seed + 1) * TURN):
        lap, place = divmod(number, len(losses(0)))
        found.append((lap, *pick(losses(lap), place)))
    return found


def test_a_scheduler_that_dies_at_any_request_has_a_successor(seed: int, log: Logger) -> None:
    """No pod is bound twice, no node overcommitted, no gang half bound, nothing left assumed."""
    lap, name, point = death(seed)
    expected = untroubled(name, lap)
    found = runner.run(run_story(name, lap, log, point=point))
    where = f"{name}, lap {lap}: {point}"
    assert found.struck == expected.asked[point.number], where
    assert found.portrait == expected.portrait, where


def test_a_node_or_pod_may_be_gone_at_any_request(seed: int, log: Logger) -> None:
    """Between the decision and its binding, and between the binding and its answer, too."""
    for lap, name, what, point in turn(seed):
        found = runner.run(run_story(name, lap, log, point=point, fault=other_faults(name)[what]))
        where = f"{name}, lap {lap}: {what} {point}"
        assert found.struck == untroubled(name, lap).asked[point.number], where


def test_enough_seeds_leave_nothing_out() -> None:
    """With few of them nothing runs twice."""
    assert len(deaths(0)) <= ENOUGH
    assert len(losses(0)) <= ENOUGH * TURN
    assert {death(seed)[1:] for seed in range(len(deaths(0)))} == {*deaths(0)}
    every = {pick(losses(0), place) for place in range(len(losses(0)))}
    assert every == {*losses(0)}


@pytest.mark.parametrize("name", STORIES)
def test_the_counts_are_those_of_the_documentation(name: str) -> None:
    check_documented("explanation/scheduling-faults.md", name, len(points(name, 0)))


@pytest.mark.parametrize("name", STORIES)
def test_a_story_without_a_fault_is_the_same_every_time(name: str) -> None:
    """What deaths are compared with must not depend on chance."""
    again = runner.run(run_story(name, 0, Logger("story")))
    first = untroubled(name, 0)
    assert (again.asked, again.portrait) == (first.asked, first.portrait)
