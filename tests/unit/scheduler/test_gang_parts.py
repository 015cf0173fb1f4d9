"""Gangs of parts: so many of each are among those that start together."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.support.gang_cluster import Bench, group, names

from grange.api.kinds.podgroup import PENDING
from grange.api.meta import ObjectKey
from grange.scheduler.gangs.pod_groups import Quorum
from grange.scheduler.gangs.podgroup_status import group_status

CPU = {"cpu": "1"}


def part(role: str, count: int) -> dict[str, Any]:
    return {"matchLabels": {"role": role}, "minMember": count}


PARTS = [part("ps", 1), part("worker", 3)]


def add(made: Bench, role: str, count: int, *, start: int = 0, **options: Any) -> None:
    found = names(role, count, start)
    made.pods(*found, gang="g", labels={"role": role}, requests=CPU, **options)


def cluster(cpus: int, **spec: Any) -> Bench:
    made = Bench()
    made.nodes("a", capacity={"cpu": str(cpus), "memory": "10Gi", "pods": "100"})
    made.group("g", 4, **{"minParts": PARTS, **spec})
    return made


def roles(made: Bench) -> dict[str, int]:
    return Counter(name.rstrip("0123456789") for name in made.where)


def message(made: Bench) -> str:
    found = made.gangs.groups.get(ObjectKey("default", "g"))
    assert found is not None
    return found.message


def test_workers_alone_are_not_a_gang() -> None:
    made = cluster(10)
    add(made, "worker", 6)
    assert made.run(5.0) == {}
    assert message(made) == "waits for minParts: 0 of 1 pods with role=ps exist"
    found = made.gangs.groups.get(ObjectKey("default", "g"))
    assert found is not None
    assert group_status(found, group("g", 4, minParts=PARTS), "").phase == PENDING
    add(made, "ps", 1)
    made.run(1.0)
    assert roles(made) == {"ps": 1, "worker": 6}


def test_quorum_has_each_part_whatever_came_first() -> None:
    made = cluster(4)
    add(made, "worker", 6)
    add(made, "ps", 1)
    made.run(1.0)
    assert roles(made) == {"ps": 1, "worker": 3}
    made.check()


def test_workers_do_not_stand_in_for_an_unplaced_server() -> None:
    made = cluster(10)
    made.nodes("b", capacity={"cpu": "1", "memory": "10Gi", "pods": "100"}, labels={"disk": "ssd"})
    made.pods("other", nodeSelector={"disk": "ssd"}, requests=CPU)
    made.run(1.0)
    add(made, "worker", 6)
    add(made, "ps", 1, nodeSelector={"disk": "ssd"})
    made.run(1.0)
    assert roles(made) == {"other": 1}
    made.gone("other")
    made.run(1.0)
    assert roles(made) == {"ps": 1, "worker": 6}


def test_quota_is_asked_for_the_quorum_of_the_parts() -> None:
    made = cluster(10, queue="x")
    made.quota("x", cpu="3")
    add(made, "worker", 6)
    add(made, "ps", 1)
    assert made.run(1.0) == {}
    made.quota("x", cpu="4")
    made.run(1.0)
    assert roles(made) == {"ps": 1, "worker": 3}


def test_preemption_makes_room_for_each_part() -> None:
    made = cluster(5)
    made.pods(*names("low", 5), requests=CPU)
    made.run(1.0)
    add(made, "worker", 6, priority=10)
    add(made, "ps", 1, priority=10)
    made.run(1.0)
    assert len(made.victims) == 4
    made.gone(*made.victims)
    made.run(1.0)
    assert roles(made) == {"low": 1, "ps": 1, "worker": 3}


def test_members_without_their_part_are_evicted_together() -> None:
    made = cluster(5)
    add(made, "worker", 4)
    add(made, "ps", 1)
    made.run(1.0)
    made.cycle.refresh()
    server = made.infos["ps0"]
    worker = made.infos["worker3"]
    high = made.infos["worker0"]
    victims = made.gangs._preemption.gang_victims([server], 10)
    assert len(victims) == 5
    assert made.gangs._preemption.gang_victims([worker], 10) == (worker,)
    assert len(made.gangs._preemption.gang_victims([worker, high], 10)) == 5


def test_member_that_is_lost_is_replaced_by_itself() -> None:
    made = cluster(5)
    add(made, "worker", 3)
    add(made, "ps", 1)
    made.run(1.0)
    made.gone("ps0")
    add(made, "ps", 1, start=1)
    made.run(1.0)
    assert roles(made) == {"ps": 1, "worker": 3}


def test_changed_parts_are_counted_again() -> None:
    made = cluster(10)
    add(made, "worker", 4)
    assert made.run(1.0) == {}
    made.group("g", 4, minParts=[part("worker", 4)])
    made.run(1.0)
    assert roles(made) == {"worker": 4}


def test_quorum_is_at_least_the_sum_of_its_parts() -> None:
    made = cluster(10)
    made.group("g", 1, minParts=PARTS)
    add(made, "ps", 3)
    assert made.run(1.0) == {}
    add(made, "worker", 3)
    made.run(1.0)
    assert roles(made) == {"ps": 3, "worker": 3}


@given(
    st.lists(st.tuples(st.integers(-1, 2), st.booleans()), max_size=12),
    st.dictionaries(st.integers(0, 2), st.integers(1, 3)),
    st.integers(0, 4),
)
def test_quorum_is_met_whenever_it_can_be(
    candidates: list[tuple[int, bool]], parts: dict[int, int], spare: int
) -> None:
    """Whatever fits decides, not the order, and it is never met without each part."""
    total = sum(parts.values()) + spare
    part_of = {str(number): of for number, (of, _) in enumerate(candidates)}
    quorum = Quorum(total, [*part_of], parts, part_of)
    placed: Counter[int] = Counter()
    for number, (of, fits) in enumerate(candidates):
        if not quorum.is_open:
            break
        if quorum.takes(str(number)):
            quorum.tried(str(number), placed=fits)
            placed[of] += fits
    fitting = Counter(of for of, fits in candidates if fits)
    possible = fitting.total() >= total and all(fitting[of] >= n for of, n in parts.items())
    assert quorum.is_met is possible
    if quorum.is_met:
        assert placed.total() == total
        assert all(placed[of] >= count for of, count in parts.items())


@pytest.mark.parametrize("rounds", [1, 50])
def test_tallies_of_parts_are_those_of_a_recount(rounds: int) -> None:
    made = cluster(4)
    for number in range(rounds):
        add(made, "worker", 2, start=2 * number)
        add(made, "ps", 1, start=number)
        made.run()
        if number % 3 == 0 and made.where:
            made.gone(*[*made.where][:2])
        found = made.gangs.groups.get(ObjectKey("default", "g"))
        assert found is not None
        before = found.counts, found.part_counts
        found.recount()
        assert (found.counts, found.part_counts) == before
