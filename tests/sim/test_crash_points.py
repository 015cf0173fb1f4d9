"""A crash at every await of the seam: the process that acts dies at each of its requests, and nothing is lost.

Each story runs once without a crash, and its requests are counted; then once for each request and
side, with a crash there. Every run is judged by itself, and must end as the one without a crash.
A seed picks one crash of every other story; twice as many seeds as a story has crash points pick every
one. Further seeds run the stories on a slower network, where requests overlap differently.
"""

from functools import cache
from math import gcd

import pytest
from tests.sim.replication_scenarios import STORIES, Ending, run_story
from tests.support.scenarios import check_documented

from grange.base.log import Logger
from grange.sim import runner
from grange.sim.crashpoints import CrashPoint, every_point

ENOUGH = 1000
"""Seeds of ``make sim``."""

TURNS = 2


@cache
def untroubled(name: str, lap: int) -> Ending:
    """The story without a crash; its requests are those of the members that act in it."""
    return runner.run(run_story(name, lap, Logger("story")))


def points(name: str, lap: int) -> list[CrashPoint]:
    """Where a process may die in a story."""
    return [*every_point(len(untroubled(name, lap).acted))]


def stories(seed: int) -> list[str]:
    """What a seed runs: every story in two turns."""
    return [*STORIES][seed % TURNS :: TURNS]


def pick(name: str, seed: int) -> tuple[int, CrashPoint]:
    """The lap and the crash point of a seed; seeds that follow each other are far apart in the story."""
    lap, place = divmod(seed // TURNS, len(points(name, 0)))
    found = points(name, lap)
    size = len(found)
    stride = next(n for n in range(int(size * 0.618), 2 * size) if gcd(n, size) == 1)
    return lap, found[place * stride % size]


def test_a_crash_at_any_request_changes_nothing_in_the_end(seed: int, log: Logger) -> None:
    for name in stories(seed):
        lap, point = pick(name, seed)
        expected = untroubled(name, lap)
        found = runner.run(run_story(name, lap, log, actors=expected.actors, point=point))
        where = f"{name}, lap {lap}: {point}"
        assert found.struck == expected.acted[point.number], where
        assert found.portrait == expected.portrait, where


@pytest.mark.parametrize("name", STORIES)
def test_every_crash_point_has_its_seed(name: str) -> None:
    """Enough seeds leave none out, and with fewer none runs twice."""
    every = points(name, 0)
    assert 50 < len(every) * TURNS <= ENOUGH
    picks_of = [seed for seed in range(len(every) * TURNS) if name in stories(seed)]
    picked = [pick(name, seed)[1] for seed in picks_of]
    assert len({*picked}) == len(picked)
    assert {*picked} == {*every}


@pytest.mark.parametrize("name", STORIES)
def test_the_counts_are_those_of_the_documentation(name: str) -> None:
    check_documented("explanation/replication-faults.md", name, len(points(name, 0)))


@pytest.mark.parametrize("name", STORIES)
def test_a_story_without_a_crash_is_the_same_every_time(name: str) -> None:
    """What crashes are compared with must not depend on chance."""
    again = runner.run(run_story(name, 0, Logger("story")))
    first = untroubled(name, 0)
    assert (again.acted, again.portrait) == (first.acted, first.portrait)
