"""Quotas: what is admitted stays within capacity and borrowing, and no pod waits forever."""

from collections.abc import Callable

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.gang_cluster import Bench, names

from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.pod_requests import Resources
from grange.scheduler.gangs.quotas import Grant, Quotas, amounts, read, total

BIG = {"cpu": "100", "memory": "100Gi", "pods": "1000"}
CPU = {"cpu": "1"}


def in_queue(name: str) -> dict[str, str]:
    return {QUEUE_LABEL: name}


# --- the books ------------------------------------------------------------------------------------


def test_amounts_are_whole_numbers_by_resource() -> None:
    need = Resources(cpu_milli=1500, memory_bytes=2**30, scalars={"example.com/gpu": 2})
    found = amounts(need)
    assert found == {"cpu": 1500, "memory": 2**30, "pods": 1, "example.com/gpu": 2}
    assert total([found, {"cpu": 500}])["cpu"] == 2000
    assert read({"cpu": "1500m", "memory": "1Gi", "pods": 3}) == {
        "cpu": 1500, "memory": 2**30, "pods": 3,
    }  # fmt: skip


def test_a_refusal_states_how_much_is_missing_of_what() -> None:
    quotas = Quotas()
    assert quotas.refusal("x", {"cpu": 1}) == "queue x does not exist"
    quotas.grant("x", Grant({"cpu": 10_000, "memory": 2**30}))
    quotas.charge("u", "x", {"cpu": 8_000})
    assert quotas.refusal("x", {"cpu": 2_000, "example.com/gpu": 9}) == ""
    assert quotas.refusal("x", {"cpu": 4_000, "memory": 2**31}) == (
        "over quota of queue x: cpu 12 of 10, memory 2Gi of 1Gi, borrowing none"
    )
    quotas.grant("x", Grant({"cpu": 10_000}, "c", {"cpu": 1_000}))
    assert quotas.refusal("x", {"cpu": 4_000}) == (
        "over quota of queue x: cpu 12 of 10, borrowing at most 1"
    )
    quotas.grant("x", Grant({"cpu": 10_000}, "c"))
    assert quotas.refusal("x", {"cpu": 4_000}) == "over quota of cohort c: cpu 12 of 10"
    quotas.grant("y", Grant({"cpu": 1_000}, "c"))
    quotas.charge("v", "y", {"cpu": 2_000})
    assert quotas.refusal("x", {"cpu": 2_000}) == (
        "over quota of cohort c: cpu 12 of 11, queues that borrow: y"
    )
    assert quotas.borrowed("y") == {"cpu": 1_000}


def test_a_charge_counts_once_and_goes_with_its_pod() -> None:
    quotas = Quotas()
    quotas.grant("x", Grant({"cpu": 10}))
    assert quotas.take_freed() == ("x",)
    quotas.grant("x", Grant({"cpu": 10}))  # again: nothing new
    assert quotas.take_freed() == ()
    quotas.charge("u", "x", {"cpu": 4})
    quotas.charge("u", "x", {"cpu": 4})
    assert (quotas.used("x"), quotas.count("x")) == ({"cpu": 4}, 1)
    quotas.charge("u", "y", {"cpu": 4})  # it moved
    assert (quotas.used("x"), quotas.used("y")) == ({}, {"cpu": 4})
    assert quotas.take_freed() == ("x",)
    quotas.release("u")
    quotas.release("u")
    assert quotas.used("y") == {}
    assert not quotas._used  # nothing is kept of queues that pods named once
    assert not quotas._charged
    assert quotas.take_freed() == ("y",)


def test_who_comes_later_is_admitted_only_beside_a_claim() -> None:
    quotas = Quotas()
    quotas.grant("x", Grant({"cpu": 10}))
    quotas.charge("u", "x", {"cpu": 5})
    quotas.claim("g", "x", {"cpu": 8}, (0.0, 10.0))
    assert quotas.refusal("x", {"cpu": 1}, (0.0, 11.0))
    assert quotas.refusal("x", {"cpu": 1}, (0.0, 9.0)) == ""
    assert quotas.refusal("x", {"cpu": 1}, (-5.0, 11.0)) == ""
    quotas.release("u")
    assert quotas.refusal("x", {"cpu": 2}, (0.0, 11.0)) == ""
    assert quotas.refusal("x", {"cpu": 3}, (0.0, 11.0))
    quotas.unclaim("h")  # another claim
    assert quotas.refusal("x", {"cpu": 3}, (0.0, 11.0))
    quotas.unclaim("g")
    assert quotas.refusal("x", {"cpu": 3}, (0.0, 11.0)) == ""


def test_a_claim_follows_its_owner_and_its_queue() -> None:
    """The rank and the cohort may change while it waits; those who may go now are returned."""
    quotas = Quotas()
    quotas.grant("x", Grant({"cpu": 10}, "c"))
    quotas.grant("y", Grant({"cpu": 10}, "c"))
    quotas.take_freed()
    quotas.claim("g", "x", {"cpu": 15}, (-9.0, 10.0))
    assert quotas.refusal("y", {"cpu": 6}, (-1.0, 11.0))
    quotas.renew("g", {"cpu": 15}, (-9.0, 10.0))
    quotas.renew("h", {"cpu": 15}, (0.0, 10.0))  # has none
    assert quotas.take_freed() == ()
    quotas.renew("g", {"cpu": 15}, (0.0, 10.0))
    assert quotas.refusal("y", {"cpu": 6}, (-1.0, 11.0)) == ""
    assert quotas.refusal("y", {"cpu": 6}, (0.0, 11.0))
    assert quotas.take_freed() == ("x",)
    quotas.grant("x", Grant({"cpu": 15}))
    assert quotas.take_freed() == ("x", "y")
    assert quotas.refusal("y", {"cpu": 6}, (0.0, 11.0)) == ""
    assert quotas.refusal("x", {"cpu": 1}, (0.0, 11.0))
    quotas.clear()
    assert quotas.take_freed() == ("x",)
    assert quotas.refusal("x", {"cpu": 1}, (0.0, 11.0)) == ""


def test_a_claim_that_cannot_be_had_any_more_is_dropped() -> None:
    quotas = Quotas()
    quotas.grant("x", Grant({"cpu": 4}, "c"))
    quotas.grant("y", Grant({"cpu": 10}, "c"))

    def claimed() -> bool:
        return bool(quotas.refusal("x", {"cpu": 14}, (0.0, 99.0)))

    spoils: tuple[Callable[[], None], ...] = (
        lambda: quotas.grant("x", Grant({"cpu": 1}, "c")),  # itself less
        lambda: quotas.grant("x", Grant({"cpu": 4}, "c", {"cpu": 1})),  # may borrow less
        lambda: quotas.grant("y", Grant({"cpu": 6}, "c")),  # its cohort has less
        lambda: quotas.grant("y", None),
        lambda: quotas.grant("x", None),
        lambda: quotas.renew("g", {"cpu": 15}, (0.0, 1.0)),  # it wants more
    )
    for spoil in spoils:
        quotas.grant("x", Grant({"cpu": 4}, "c"))
        quotas.grant("y", Grant({"cpu": 10}, "c"))
        quotas.claim("g", "x", {"cpu": 12}, (0.0, 1.0))
        assert claimed()
        quotas.grant("y", Grant({"cpu": 20}, "c"))  # still to be had
        quotas.grant("y", Grant({"cpu": 10}, "c"))
        assert claimed()
        quotas.take_freed()
        spoil()
        assert "x" in quotas.take_freed()
        quotas.grant("x", Grant({"cpu": 4}, "c"))
        quotas.grant("y", Grant({"cpu": 10}, "c"))
        assert not claimed()


def test_of_several_claims_the_first_counts() -> None:
    quotas = Quotas()
    quotas.grant("x", Grant({"cpu": 10}))
    quotas.claim("g", "x", {"cpu": 8}, (0.0, 10.0))
    quotas.claim("h", "x", {"cpu": 10}, (0.0, 20.0))
    assert quotas.refusal("x", {"cpu": 2}, (0.0, 15.0)) == ""
    assert quotas.refusal("x", {"cpu": 3}, (0.0, 15.0))
    quotas.unclaim("g")
    assert quotas.refusal("x", {"cpu": 3}, (0.0, 15.0)) == ""
    assert quotas.refusal("x", {"cpu": 1}, (0.0, 25.0))


def test_what_could_never_be_admitted_is_known() -> None:
    quotas = Quotas()
    quotas.grant("x", Grant({"cpu": 10}, "c", {"cpu": 3}))
    quotas.grant("y", Grant({"cpu": 2}, "c"))
    assert not quotas.impossible("x", {"cpu": 12})
    assert quotas.impossible("x", {"cpu": 13})  # the cohort has 12
    assert quotas.impossible("absent", {})
    assert quotas.entitled("x", {"cpu": 10})
    assert not quotas.entitled("x", {"cpu": 11})


class Sharing(RuleBasedStateMachine):
    """Three queues, two of them in a cohort; whatever is asked for and given back."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas = Quotas()
        self.grants = {
            "a": Grant({"cpu": 10, "gpu": 2}, "c", {"cpu": 4}),
            "b": Grant({"cpu": 6}, "c"),
            "alone": Grant({"cpu": 5}),
        }
        for name, grant in self.grants.items():
            self.quotas.grant(name, grant)
        self.model: dict[str, tuple[str, dict[str, int]]] = {}
        self.made = 0

    @rule(
        queue=st.sampled_from(["a", "b", "alone"]),
        cpu=st.integers(0, 8),
        gpu=st.integers(0, 2),
        rank=st.tuples(st.just(0.0), st.floats(0, 10)),
    )
    def ask(self, queue: str, cpu: int, gpu: int, rank: tuple[float, float]) -> None:
        wanted = {"cpu": cpu, "gpu": gpu}
        if not self.quotas.refusal(queue, wanted, rank):
            self.made += 1
            self.quotas.charge(f"u{self.made}", queue, wanted)
            self.model[f"u{self.made}"] = (queue, wanted)

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.model:
            uid = data.draw(st.sampled_from(sorted(self.model)))
            del self.model[uid]
            self.quotas.release(uid)

    @rule(queue=st.sampled_from(["a", "b"]), cpu=st.integers(1, 10))
    def claim(self, queue: str, cpu: int) -> None:
        self.quotas.claim("another", queue, {"cpu": cpu}, (0.0, 5.0))

    @rule()
    def unclaim(self) -> None:
        self.quotas.unclaim("another")

    def use(self, name: str, *queues: str) -> int:
        return sum(wanted[name] for queue, wanted in self.model.values() if queue in queues)

    @invariant()
    def nothing_above_capacity_and_borrowing(self) -> None:
        assert self.use("cpu", "a") <= 10 + 4
        assert self.use("cpu", "a", "b") <= 16
        assert self.use("cpu", "alone") <= 5
        assert self.use("gpu", "a") <= 2
        for queue in self.grants:
            used = self.quotas.used(queue)
            assert used.get("cpu", 0) == self.use("cpu", queue)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# --- in the loop ----------------------------------------------------------------------------------


def test_gang_over_quota_waits_whole_and_runs_when_it_is_free() -> None:
    bench = Bench()
    bench.nodes("a", capacity=BIG)
    bench.quota("q", cpu="10")
    bench.group("g", 4, queue="q")
    bench.group("h", 8, queue="q")
    bench.pods(*names("g", 4), gang="g", requests=CPU)
    bench.pods(*names("h", 8), gang="h", requests=CPU)
    assert set(bench.run(5.0)) == set(names("g", 4))
    assert bench.why["h0"] == "over quota of queue q: cpu 12 of 10, borrowing none"
    assert bench.rejectors["h0"] == {"Quota"}
    bench.gone("g0")
    assert set(bench.run(3.0)) == set(names("g", 3, start=1))
    bench.gone("g1")
    assert len(bench.run(3.0)) == 2 + 8
    assert bench.gangs.quotas.used("q")["cpu"] == 10_000


def test_single_pods_may_have_a_queue_too() -> None:
    bench = Bench()
    bench.nodes("a", capacity=BIG)
    bench.quota("q", pods=2)
    bench.pods(*names("p", 4), labels=in_queue("q"))
    assert set(bench.run(2.0)) == {"p0", "p1"}
    assert bench.why["p3"] == "over quota of queue q: pods 3 of 2, borrowing none"
    bench.gone("p0")
    assert set(bench.run(2.0)) == {"p1", "p2"}
    bench.quota("q", pods=3)
    assert set(bench.run(2.0)) == {"p1", "p2", "p3"}


def test_a_queue_that_is_not_there_is_named() -> None:
    bench = Bench()
    bench.nodes("a", capacity=BIG)
    bench.group("g", 1, queue="q")
    bench.pods("p", gang="g")
    bench.pods("x", labels=in_queue("q"))
    assert bench.run(2.0) == {}
    assert bench.why == {"p": "queue q does not exist", "x": "queue q does not exist"}
    bench.quota("q", cpu="1")
    assert set(bench.run(2.0)) == {"p", "x"}


def test_small_gangs_cannot_starve_a_large_one_of_quota() -> None:
    """A pod a second that runs for six would keep the queue half full forever."""
    bench = Bench(overtakes=4)
    bench.nodes("a", capacity=BIG)
    bench.quota("q", cpu="10")
    bench.pods(*names("first", 5), labels=in_queue("q"), requests=CPU)
    bench.run(1.0)
    ends = dict.fromkeys(names("first", 5), 6.0)
    bench.group("g", 8, queue="q")
    bench.pods(*names("g", 8), gang="g", requests=CPU)
    bench.run(1.0)
    for second in range(40):
        for name in [name for name, end in ends.items() if end <= second and name in bench.where]:
            bench.gone(name)
        bench.pods(f"s{second}", labels=in_queue("q"), requests=CPU)
        bench.run(1.0)
        for name in bench.where:
            ends.setdefault(name, second + 6.0)
        if "g0" in bench.where:
            break
    assert "g0" in bench.where
    small = [name for name in bench.order[: bench.order.index("g0")] if name.startswith("s")]
    # Four may overtake; further ones only next to the claim: 2 of the 10.
    assert 4 <= len(small) <= 4 + 2 + 2
    assert bench.gangs.quotas.used("q")["cpu"] <= 10_000


def test_unused_quota_may_be_borrowed() -> None:
    bench = Bench()
    bench.nodes("a", capacity=BIG)
    bench.quota("q", "all", {"cpu": "3"}, cpu="4")
    bench.quota("r", "all", cpu="4")
    bench.group("g", 7, queue="q")
    bench.pods(*names("g", 8), gang="g", requests=CPU)
    bench.run(2.0)
    assert len(bench.where) == 7
    assert bench.why["g7"] == "over quota of queue q: cpu 8 of 4, borrowing at most 3"
    bench.pods("x", "y", labels=in_queue("r"), requests=CPU)
    assert set(bench.run(2.0)) - set(names("g", 8)) == {"x"}
    assert bench.why["y"] == "over quota of cohort all: cpu 9 of 8, queues that borrow: q"


def _claiming(important: int) -> Bench:
    """A gang of cohort ``all`` waits for the pod ``fill`` to end, and claims what it wants."""
    bench = Bench(overtakes=3)
    bench.nodes("a", capacity=BIG)
    bench.quota("q", "all", cpu="4")
    bench.quota("r", "all", cpu="4")
    bench.pods("fill", labels=in_queue("q"), requests={"cpu": "5"})
    bench.run(1.0)
    bench.group("g", 2, queue="q")
    bench.pods("g0", gang="g", requests={"cpu": "2"}, priority=important)
    bench.pods("g1", "g2", gang="g", requests={"cpu": "2"})
    bench.run(1.0)
    for number in range(5):
        bench.now += 1.0
        bench.pods(f"x{number}", labels=in_queue("r"), requests={"cpu": "100m"})
        bench.run()
    assert set(bench.where) == {"fill", "x0", "x1", "x2"}
    return bench


def test_gang_that_loses_its_lead_ignores_its_own_claim() -> None:
    bench = _claiming(important=10)
    bench.gone("g0")
    bench.run(1.0)
    bench.gone("fill")
    assert {"g1", "g2"} <= set(bench.run(5.0))
    assert {"x3", "x4"} <= set(bench.where)  # nothing is claimed any more


def test_the_claim_of_a_gang_that_goes_goes_with_it() -> None:
    bench = _claiming(important=10)
    bench.gone("g0")
    bench.run(1.0)
    bench.gone("g1", "g2")
    assert set(bench.run(1.0)) == {"fill", *names("x", 5)}


def test_a_claim_does_not_stay_in_a_cohort_that_its_queue_left() -> None:
    bench = _claiming(important=0)
    bench.quota("q", cpu="4")
    assert set(bench.run(1.0)) == {"fill", *names("x", 5)}


def test_a_claim_ends_when_its_queue_shrinks_below_it() -> None:
    """It could not be had any more, and no pod behind it should wait for that."""
    bench = _claiming(important=0)
    bench.quota("q", "all", cpu="2")
    bench.quota("r", "all", cpu="1")
    assert set(bench.run(1.0)) == {"fill", "x0", "x1", "x2"}  # of 3 there are 5.3 in use
    bench.gone("fill")
    assert {"x3", "x4"} <= set(bench.run(1.0))
