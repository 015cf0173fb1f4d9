"""A gang preempts for all of its members or for none; half a gang is not left as a victim."""

from tests.support.gang_cluster import Bench, names

from grange.sim import builders

ONE = {"cpu": "1", "memory": "1Gi", "pods": "10"}
CPU = {"cpu": "1"}


def test_a_gang_preempts_for_all_of_its_members_at_once() -> None:
    bench = Bench()
    bench.nodes(*names("n", 4), capacity=ONE)
    bench.pods(*names("low", 3), requests=CPU)
    bench.run(1.0)
    bench.group("g", 4)
    bench.pods(*names("g", 4), gang="g", requests=CPU, priority=10)
    bench.run(1.0)
    assert sorted(bench.victims) == names("low", 3)
    promised = dict(bench.cycle.nominator)
    assert sorted(promised) == [f"uid-{name}" for name in names("g", 4)]
    assert sorted(promised.values()) == names("n", 4)
    assert bench.cache.assumed_count == 3  # the victims that are still there; none of the gang
    bench.pods("late", requests=CPU)  # no less important pod gets what is promised
    bench.run(5.0)
    assert "late" not in bench.where
    bench.gone(*names("low", 3))
    assert sorted(bench.run(12.0)) == names("g", 4)
    assert dict(bench.cycle.nominator) == {}
    bench.check()


def test_gang_preempts_with_room_for_one_member_per_node() -> None:
    bench = Bench()
    bench.nodes("n0", "n1", capacity={"cpu": "2", "memory": "2Gi", "pods": "10"})
    bench.pods("low0", "low1", requests=CPU)
    bench.run(1.0)
    bench.group("g", 3)
    bench.pods(*names("g", 3), gang="g", requests=CPU, priority=10)
    bench.run(1.0)
    (victim,) = bench.victims
    assert len(dict(bench.cycle.nominator)) == 3
    bench.gone(victim)
    assert {*names("g", 3)} <= set(bench.run(12.0))
    bench.check()


def test_no_pod_is_preempted_for_a_part_of_a_gang() -> None:
    """Room could be made for three of four: the fourth node holds a pod as important."""
    bench = Bench()
    bench.nodes(*names("n", 4), capacity=ONE)
    bench.pods("high", requests=CPU, priority=10)
    bench.pods(*names("low", 3), requests=CPU)
    bench.run(1.0)
    bench.group("g", 4)
    bench.pods(*names("g", 4), gang="g", requests=CPU, priority=10)
    bench.run(30.0)
    assert bench.victims == []
    assert dict(bench.cycle.nominator) == {}
    assert len(bench.where) == 4
    bench.cycle.refresh()
    bench.check()


def test_gang_seeks_no_more_victims_while_the_first_leave() -> None:
    bench = Bench()
    bench.nodes(*names("n", 6), capacity=ONE)
    bench.pods(*names("low", 6), requests=CPU)
    bench.run(1.0)
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests=CPU, priority=10)
    bench.run(1.0)
    assert len(bench.victims) == 2
    bench.gone(bench.victims[0])  # the other takes its time
    bench.run(12.0)
    assert len(set(bench.victims)) == 2
    assert "g0" not in bench.where
    bench.gone(bench.victims[1])
    assert {"g0", "g1"} <= set(bench.run(12.0))


def test_victim_takes_its_gang_if_too_few_would_be_left() -> None:
    bench = Bench()
    bench.nodes(*names("n", 3), capacity=ONE)
    bench.group("v", 3)
    bench.pods(*names("v", 3), gang="v", requests=CPU)
    bench.run(1.0)
    bench.pods("urgent", requests=CPU, priority=10)
    bench.run(1.0)
    assert sorted(bench.victims) == names("v", 3)


def test_a_gang_with_members_to_spare_loses_only_those() -> None:
    bench = Bench()
    bench.nodes(*names("n", 4), capacity=ONE)
    bench.group("v", 2)
    bench.pods(*names("v", 4), gang="v", requests=CPU)
    bench.run(1.0)
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests=CPU, priority=10)
    bench.run(1.0)
    assert len(bench.victims) == 2
    bench.gone(*bench.victims)
    assert {"g0", "g1"} <= set(bench.run(12.0))
    bench.group("h", 1)
    bench.pods("h0", gang="h", requests=CPU, priority=10)
    bench.victims.clear()
    bench.run(1.0)
    assert len(bench.victims) == 2  # one more would leave half a gang: both go


def test_a_gang_that_must_be_in_one_domain_makes_room_in_one() -> None:
    bench = Bench()
    for rack in ("r0", "r1"):
        bench.nodes(*names(f"{rack}-", 2), labels={"rack": rack}, capacity=ONE)
    bench.pods("high", requests=CPU, priority=10, nodeSelector={"rack": "r0"})
    bench.pods("low0", requests=CPU, nodeSelector={"rack": "r0"})
    bench.pods("low1", "low2", requests=CPU, nodeSelector={"rack": "r1"})
    bench.run(1.0)
    bench.group("g", 2, topology={"key": "rack"})
    bench.pods("g0", "g1", gang="g", requests=CPU, priority=5)
    bench.run(1.0)
    assert sorted(bench.victims) == ["low1", "low2"]
    bench.gone("low1", "low2")
    found = bench.run(12.0)
    assert {found[name].partition("-")[0] for name in ("g0", "g1")} == {"r1"}


def test_room_a_gang_cannot_use_does_not_stay_nominated() -> None:
    """Its quota went to another pod while its victims were going: others may have the nodes."""
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.nodes("c", labels={"only": "x"}, capacity=ONE)
    bench.quota("q", cpu="2")
    bench.pods("low0", "low1", requests=CPU)
    bench.pods("low2", requests=CPU, nodeSelector={"only": "x"})
    bench.run(1.0)
    bench.group("g", 2, queue="q")
    bench.pods("g0", "g1", gang="g", requests=CPU, priority=10)
    bench.run(1.0)
    assert len(dict(bench.cycle.nominator)) == 2
    bench.quota("q", cpu="1")
    bench.gone(*bench.victims)
    bench.run(12.0)
    assert dict(bench.cycle.nominator) == {}
    bench.pods("late0", "late1", requests=CPU)
    assert {"late0", "late1"} <= set(bench.run(3.0))


# --- quota that was lent --------------------------------------------------------------------------


def _lent(bench: Bench, own: int, borrowed: int) -> None:
    """Queue ``b`` uses its own and what ``a`` leaves; one CPU each."""
    bench.nodes("n", capacity={"cpu": "64", "memory": "64Gi", "pods": "100"})
    bench.quota("a", "c", cpu=str(borrowed))
    bench.quota("b", "c", cpu=str(own))
    bench.pods(*names("b", own + borrowed), labels={"grange.dev/queue": "b"}, requests=CPU)
    bench.run(1.0)
    assert len(bench.where) == own + borrowed


def test_121_borrowed_quota_is_reclaimed_and_not_more() -> None:
    bench = Bench()
    _lent(bench, 3, 4)
    bench.group("g", 2, queue="a")
    bench.pods("g0", "g1", gang="g", requests=CPU)
    bench.run(1.0)
    assert len(bench.victims) == 2
    bench.gone(*bench.victims)
    assert {"g0", "g1"} <= set(bench.run(12.0))
    bench.victims.clear()
    bench.group("h", 3, queue="a")  # 5 of 4: it would have to borrow itself
    bench.pods(*names("h", 3), gang="h", requests=CPU)
    bench.run(10.0)
    assert bench.victims == []
    assert bench.gangs.quotas.used("b")["cpu"] == 5_000


def test_121_a_single_pod_gets_its_queues_share_back_too() -> None:
    bench = Bench()
    _lent(bench, 1, 1)
    bench.pods("x", labels={"grange.dev/queue": "a"}, requests=CPU)
    bench.run(1.0)
    assert len(bench.victims) == 1
    bench.gone(*bench.victims)
    assert "x" in bench.run(12.0)


def test_121_no_victims_if_a_queue_would_keep_less_than_its_own() -> None:
    """The borrower is one gang of four with two of the queue's: all of it or none of it."""
    bench = Bench()
    bench.nodes("n", capacity={"cpu": "64", "memory": "64Gi", "pods": "100"})
    bench.quota("a", "c", cpu="2")
    bench.quota("b", "c", cpu="2")
    bench.group("v", 4, queue="b")
    bench.pods(*names("v", 4), gang="v", requests=CPU)
    bench.run(1.0)
    bench.group("g", 1, queue="a")
    bench.pods("g0", gang="g", requests=CPU)
    bench.run(10.0)
    assert bench.victims == []
    assert "g0" not in bench.where
    assert bench.why["g0"] == "over quota of cohort c: cpu 5 of 4, queues that borrow: b"


def test_121_borrower_whose_node_is_gone_returns_its_quota() -> None:
    """It is charged until it is deleted, and stands on no node that could be looked at."""
    bench = Bench()
    bench.nodes("n", "m", capacity={"cpu": "1", "memory": "64Gi", "pods": "100"})
    bench.quota("a", "c", cpu="1")
    bench.quota("b", "c", cpu="1")
    bench.pods("b0", "b1", labels={"grange.dev/queue": "b"}, requests=CPU)
    bench.run(1.0)
    for name in ("m", "n"):
        bench.cache.remove_node(builders.node(name))
    bench.nodes("o", capacity={"cpu": "1", "memory": "64Gi", "pods": "100"})
    bench.pods("x", labels={"grange.dev/queue": "a"}, requests=CPU)
    bench.run(1.0)
    assert len(bench.victims) == 1
    bench.gone(*bench.victims)
    assert bench.run(12.0)["x"] == "o"
