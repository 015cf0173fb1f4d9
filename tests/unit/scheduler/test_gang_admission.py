"""Gangs without pods: admitted by what their groups state, and never for long without pods."""

import msgspec
import pytest
from tests.support.gang_cluster import Bench, group, names, quota

from grange.api import conditions
from grange.api.kinds.podgroup import ADMITTED_CONDITION
from grange.api.kinds.priorityclass import PriorityClass
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.meta import Condition, ObjectKey, ObjectMeta
from grange.scheduler.gangs.gang_admission import HOLD_S
from grange.scheduler.gangs.pod_groups import Gang
from grange.scheduler.gangs.podgroup_status import group_status, group_use, queue_status

BIG = {"cpu": "100", "memory": "100Gi", "pods": "1000"}
CPU = {"cpu": "1"}


def gated(made: Bench, name: str, members: int, queue: str = "x", **spec: object) -> None:
    """A gated group whose pods request one CPU each."""
    resources = {"cpu": str(members)}
    made.group(name, members, queue=queue, minResources=resources, admission="Gated", **spec)


def gang(made: Bench, name: str) -> Gang:
    found = made.gangs.groups.get(ObjectKey("default", name))
    assert found is not None
    return found


def used(made: Bench, *of: str) -> list[dict[str, str]]:
    gangs = [gang(made, name) for name in of]
    return [group_use(item, item.group, made.gangs) for item in gangs if item.group is not None]


def admitted(made: Bench, *of: str) -> list[str]:
    return [name for name in of if gang(made, name).admitted]


@pytest.fixture
def made() -> Bench:
    bench = Bench()
    bench.nodes("a", capacity=BIG)
    bench.quota("x", cpu="10")
    return bench


def test_quota_is_charged_before_there_are_pods(made: Bench) -> None:
    for name in ("g", "h", "i"):
        gated(made, name, 6)
        made.run(1.0)
    assert admitted(made, "g", "h", "i") == ["g"]
    assert made.gangs.quotas.used("x") == {"cpu": 6_000, "pods": 6}
    assert (gang(made, "h").reason, gang(made, "h").message) == (
        "OverQuota",
        "over quota of queue x: cpu 12 of 10, borrowing none; position 1 in queue x",
    )
    assert gang(made, "i").message.endswith("position 2 in queue x")
    status = queue_status(quota("x", cpu="10"), made.gangs, "")
    assert (status.admitted, status.pending, status.used) == (6, 2, {"cpu": "6"})
    assert used(made, "g", "h") == [{"cpu": "6"}, {}]


def test_gang_beyond_its_queue_shows_that_it_never_fits(made: Bench) -> None:
    gated(made, "large", 12)
    made.run(1.0)
    assert (gang(made, "large").reason, gang(made, "large").message) == (
        "OverQuota",
        "over quota of queue x: cpu 12 of 10, borrowing none; "
        "it can never fit: ask for less, or raise spec.capacity of queue x",
    )
    made.quota("x", cpu="12")
    made.run(1.0)
    assert admitted(made, "large") == ["large"]


def test_pods_take_the_place_of_the_held_quota(made: Bench) -> None:
    gated(made, "g", 6)
    made.run()
    made.pods(*names("p", 5), gang="g", requests=CPU)
    assert made.run(1.0) == {}
    assert made.gangs.quotas.used("x")["cpu"] == 6_000
    made.pods("p5", gang="g", requests=CPU)
    assert len(made.run(1.0)) == 6
    assert made.gangs.quotas.used("x") == {"cpu": 6_000, "pods": 6}
    assert used(made, "g") == [{"cpu": "6"}]
    made.run(2 * HOLD_S)
    assert admitted(made, "g") == ["g"]
    made.check()


def test_next_is_admitted_when_quota_is_free(made: Bench) -> None:
    gated(made, "g", 6)
    made.run(1.0)
    gated(made, "h", 6)
    made.pods(*names("p", 6), gang="g", requests=CPU)
    made.run(1.0)
    assert admitted(made, "h") == []
    made.gone(*names("p", 6))
    made.run(1.0)
    assert admitted(made, "g", "h") == ["h"], "the gang that ended is behind those that waited"


def test_quota_is_returned_when_no_pods_appear(made: Bench) -> None:
    gated(made, "g", 6)
    made.run(1.0)
    gated(made, "h", 6)
    made.run(HOLD_S - 2.0)
    assert admitted(made, "g", "h") == ["g"]
    made.run(2.0)
    assert admitted(made, "g", "h") == ["h"]
    assert gang(made, "g").message == "0 of 6 pods were created within 60 s; waits 60 s"
    made.pods(*names("p", 6), gang="h", requests=CPU)
    made.run(HOLD_S)
    assert len(made.where) == 6
    assert gang(made, "g").reason == "OverQuota"


def test_gang_that_gets_no_pods_is_admitted_ever_more_rarely(made: Bench) -> None:
    gated(made, "g", 6)
    held = 0
    for _ in range(3600):
        made.run(1.0)
        held += gang(made, "g").admitted
    assert HOLD_S <= held <= 6 * HOLD_S


def test_changed_spec_is_decided_at_once(made: Bench) -> None:
    gated(made, "g", 12)
    made.run(1.0)
    assert admitted(made, "g") == []
    gated(made, "g", 10)
    made.run(1.0)
    assert admitted(made, "g") == ["g"]
    gated(made, "g", 4)
    assert made.gangs.quotas.used("x")["cpu"] == 4_000
    made.group("g", 4, queue="x")
    assert made.gangs.quotas.used("x") == {}


def test_deleted_group_holds_nothing(made: Bench) -> None:
    gated(made, "g", 6)
    made.run(1.0)
    made.gangs.handlers.delete_group(group("g", 6), made.now)
    assert made.gangs.quotas.used("x") == {}
    assert made.gangs.handlers.next_deadline(made.now + 1.0) is not None, "quota is free"
    made.run(1.0)
    assert made.gangs.handlers.next_deadline(made.now) is None


def test_nodes_must_have_room_for_what_is_held_too(made: Bench) -> None:
    for name in ("g", "h"):
        gated(made, name, 60, queue="")
        made.run(1.0)
    assert admitted(made, "g", "h") == ["g"]
    assert (gang(made, "h").reason, gang(made, "h").message) == (
        "NoRoom",
        "gang wants more than nodes have free: cpu 40 of 60",
    )
    made.nodes("b", capacity=BIG)
    made.run(1.0)
    assert admitted(made, "g", "h") == ["g", "h"]


def test_gated_gang_beyond_all_nodes_shows_that_it_never_fits(made: Bench) -> None:
    """Pods that could end make no difference; another node does."""
    made.pods(*names("low", 40), requests=CPU)
    made.run()
    gated(made, "g", 120, queue="")
    made.run(1.0)
    assert gang(made, "g").message == (
        "gang wants more than nodes have free: cpu 60 of 120"
        " (can never fit on these nodes: cpu 100 of 120 when empty)"
    )
    made.nodes("b", capacity=BIG)
    made.run(1.0)
    assert admitted(made, "g") == ["g"]


def test_gated_gang_that_fits_with_cordoned_nodes_may_fit(made: Bench) -> None:
    made.nodes("b", capacity=BIG, unschedulable=True)
    gated(made, "g", 120, queue="")
    made.run(1.0)
    assert gang(made, "g").message == "gang wants more than nodes have free: cpu 100 of 120"
    gated(made, "h", 220, queue="")
    made.run(1.0)
    assert gang(made, "h").message.endswith(
        "(can never fit on these nodes: cpu 200 of 220 when empty)"
    )
    made.nodes("b", capacity=BIG)
    made.run(1.0)
    assert admitted(made, "g", "h") == ["g"]


def test_pods_of_lower_priority_count_as_room(made: Bench) -> None:
    made.pods(*names("low", 100), requests=CPU)
    made.run()
    gated(made, "g", 10)
    made.run(1.0)
    assert admitted(made, "g") == []
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=10)
    made.gangs.handlers.update_class(high)
    gated(made, "h", 10, priorityClassName="high")
    made.run(1.0)
    assert admitted(made, "g", "h") == ["h"]


def test_more_important_gangs_come_first(made: Bench) -> None:
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=10)
    made.gangs.handlers.update_class(high)
    gated(made, "g", 6)
    gated(made, "h", 6, priorityClassName="high")
    made.run(1.0)
    assert admitted(made, "g", "h") == ["h"]


def test_pods_that_wait_longer_come_first(made: Bench) -> None:
    made.pods(*names("q", 8), labels={QUEUE_LABEL: "x"}, requests=CPU)
    made.run(1.0)
    made.pods(*names("r", 4), labels={QUEUE_LABEL: "x"}, requests=CPU)
    made.run(1.0)
    gated(made, "g", 4)
    made.run(1.0)
    made.gone("q0", "q1")
    made.run(5.0)
    assert sum(name.startswith("r") for name in made.where) == 4
    assert admitted(made, "g") == []
    made.gone(*names("q", 4, start=2))
    made.run(5.0)
    assert admitted(made, "g") == ["g"]


def test_borrowed_quota_is_reclaimed_by_the_pods(made: Bench) -> None:
    made.quota("x", "c", cpu="10")
    made.quota("y", "c", cpu="10")
    made.pods(*names("y", 20), labels={QUEUE_LABEL: "y"}, requests=CPU)
    made.run(1.0)
    gated(made, "g", 6)
    gated(made, "h", 6)
    made.run(1.0)
    assert admitted(made, "g", "h") == ["g"], "the queue's own capacity holds one of them"
    made.pods(*names("p", 6), gang="g", requests=CPU)
    made.run(1.0)
    assert len(made.victims) == 6
    made.gone(*made.victims)
    made.run(1.0)
    assert sum(name.startswith("p") for name in made.where) == 6


def test_overtaken_gang_does_not_wait_for_room_forever() -> None:
    made = Bench(overtakes=4)
    made.nodes("a", capacity={"cpu": "10", "memory": "10Gi", "pods": "100"})
    made.pods(*names("s", 10), requests=CPU)
    made.run(1.0)
    gated(made, "g", 10, queue="")
    made.run(1.0)
    for number in range(6):
        made.gone(f"s{number}")
        made.pods(f"t{number}", requests=CPU)
        made.run(1.0)
    assert admitted(made, "g") == ["g"]


def test_successor_keeps_what_was_admitted(made: Bench) -> None:
    known = group("g", 6, queue="x", minResources={"cpu": "6"}, admission="Gated")
    yes = Condition(type=ADMITTED_CONDITION, status="True")
    status = msgspec.structs.replace(known.status, conditions=(yes,))
    made.gangs.handlers.update_group(msgspec.structs.replace(known, status=status), made.now)
    gated(made, "h", 6)
    made.run(1.0)
    assert admitted(made, "g", "h") == ["g"]
    made.gangs.handlers.clear()
    assert made.gangs.quotas.used("x")["cpu"] == 6_000


def test_status_has_the_condition_only_where_it_is_gated(made: Bench) -> None:
    gated(made, "g", 12)
    made.run(1.0)
    found = gang(made, "g")
    assert found.group is not None
    status = group_status(found, found.group, "")
    condition = conditions.find(status.conditions, ADMITTED_CONDITION)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "OverQuota")
    made.group("g", 12)
    assert found.group is not None
    status = group_status(found, found.group, "")
    assert conditions.find(status.conditions, ADMITTED_CONDITION) is None
