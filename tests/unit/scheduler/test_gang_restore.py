"""Gangs that lost members get all of them back or none, so that two never wait for each other."""

import pytest
from tests.support.gang_cluster import Bench, names
from tests.unit.scheduler.test_quotas import in_queue

CPU = {"cpu": "1"}


def two_gangs(**spec: str) -> Bench:
    """A gang that lost two of six, and another one of six that has their places; ten fit."""
    made = Bench()
    made.nodes("a", capacity={"cpu": "20" if spec else "10", "memory": "10Gi", "pods": "100"})
    made.quota("x", cpu="10")
    made.group("g", 6, **spec)
    made.pods(*names("g", 6), gang="g", requests=CPU)
    made.run(1.0)
    made.gone("g0", "g1")
    made.group("h", 6, **spec)
    made.pods(*names("h", 6), gang="h", requests=CPU)
    made.run(1.0)
    assert len(made.where) == 10
    made.pods("g6", "g7", gang="g", requests=CPU)
    made.run(1.0)
    return made


@pytest.mark.parametrize("spec", [{}, {"queue": "x"}], ids=["nodes", "quota"])
def test_lost_members_come_back_together(spec: dict[str, str]) -> None:
    made = two_gangs(**spec)
    made.gone("h0")
    made.run(20.0)
    assert len(made.where) == 9, "one place is of no use to a gang that lacks two"
    made.pods("h6", gang="h", requests=CPU)
    made.run(20.0)
    assert sorted(made.where) == [*names("g", 4, start=2), *names("h", 6, start=1)]
    made.gone(*names("h", 6, start=1))
    made.run(20.0)
    assert sorted(made.where) == names("g", 6, start=2)


@pytest.mark.parametrize("spec", [{}, {"queue": "x"}], ids=["nodes", "quota"])
def test_members_that_do_not_exist_yet_count_as_lost(spec: dict[str, str]) -> None:
    made = two_gangs(**spec)
    made.gone("g7", "h0")
    made.run(20.0)
    assert "g6" not in made.where
    made.pods("h6", gang="h", requests=CPU)
    made.run(1.0)
    assert "h6" in made.where


def test_members_beyond_the_quorum_come_one_by_one() -> None:
    made = Bench()
    made.nodes("a", capacity={"cpu": "5", "memory": "10Gi", "pods": "100"})
    made.group("g", 3)
    made.pods(*names("g", 8), gang="g", requests=CPU)
    assert len(made.run(1.0)) == 5


def test_important_gang_preempts_for_lost_members() -> None:
    made = Bench()
    made.nodes("a", capacity={"cpu": "6", "memory": "10Gi", "pods": "100"})
    made.group("g", 4)
    made.pods(*names("g", 4), gang="g", requests=CPU, priority=10)
    made.run(1.0)
    made.gone("g0", "g1")
    made.pods(*names("low", 4), requests=CPU)
    made.run(1.0)
    made.pods("g4", "g5", gang="g", requests=CPU, priority=10)
    made.run(1.0)
    assert len({*made.victims}) == 2
    made.gone(*{*made.victims})
    made.run(5.0)
    assert {"g4", "g5"} <= {*made.where}


@pytest.mark.parametrize("spec", [{}, {"queue": "x"}], ids=["nodes", "quota"])
@pytest.mark.parametrize("lost", [1, 2])
def test_lost_members_do_not_wait_for_who_waits_for_them(spec: dict[str, str], lost: int) -> None:
    """A gang that was overtaken too often is to get what the incomplete one would hold forever."""
    made = Bench(overtakes=2)
    made.nodes("a", capacity={"cpu": "20" if spec else "10", "memory": "10Gi", "pods": "100"})
    made.quota("x", cpu="10")
    labels = in_queue("x") if spec else {}
    made.group("g", 3, **spec)
    made.pods(*names("g", 3), gang="g", requests=CPU)
    made.run(1.0)
    made.group("h", 8, **spec)
    made.pods(*names("h", 8), gang="h", requests=CPU)
    made.run(1.0)
    made.pods(*names("s", 3), labels=labels, requests=CPU)
    made.run(1.0)
    assert {"s0", "s1", "h0"} & {*made.where} == {"s0", "s1"}
    made.gone(*names("g", lost))
    made.pods(*names("g", lost, start=3), gang="g", requests=CPU)
    made.run(5.0)
    assert {*names("g", lost, start=3)} <= {*made.where}
