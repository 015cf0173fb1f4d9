"""Gangs are placed whole or not at all; the decisions are those that would be made one by one."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.gang_cluster import Bench, names
from tests.support.scheduler_cluster import ZONE, pool_of

from grange.scheduler.clusterevents import NODE_ADD
from grange.scheduler.cycle import Batch
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Status
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import SubQueue
from grange.sim import builders

ONE = {"cpu": "1", "memory": "1Gi", "pods": "10"}
CPU = {"cpu": "1"}


# --- all or none ----------------------------------------------------------------------------------


def test_119_one_member_short_waits_and_the_last_one_brings_all() -> None:
    bench = Bench()
    bench.nodes("a", "b", "c")
    bench.group("g", 3)
    bench.pods("p0", "p1", gang="g", requests=CPU)
    assert bench.run(30.0) == {}
    assert bench.why["p0"] == bench.why["p1"] == "waits until 3 pods of pod group default/g exist"
    assert bench.gangs.attempts == 0
    bench.pods("p2", gang="g", requests=CPU)
    assert sorted(bench.run()) == ["p0", "p1", "p2"]
    bench.check()
    assert len(bench.queue) == 0


def test_pods_of_a_group_that_is_not_there_wait_for_it() -> None:
    bench = Bench()
    bench.nodes("a")
    bench.pods("p0", gang="g")
    assert bench.run(5.0) == {}
    assert bench.why["p0"] == "pod group default/g does not exist"
    bench.group("g", 1)
    assert bench.run() == {"p0": "a"}


def test_119_a_gang_that_does_not_fit_holds_nothing() -> None:
    """Room for two of three: none is placed, the snapshot is clean, and others use the room."""
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.group("g", 3)
    bench.pods(*names("p", 3), gang="g", requests=CPU)
    assert bench.run() == {}
    assert bench.cache.assumed_count == 0
    assert bench.why["p0"] == (
        "0/2 nodes are available: gang wants 3 (cpu 1 each), room for 2"
        " (can never fit on these nodes: 2 when empty), 2 Insufficient cpu."
    )
    assert {bench.why[name] for name in names("p", 3)} == {bench.why["p0"]}
    bench.pods("x", "y", requests=CPU)
    assert set(bench.run()) == {"x", "y"}
    bench.check()


def test_119_two_gangs_on_room_for_one_never_deadlock() -> None:
    bench = Bench()
    bench.nodes("a", "b", "c", capacity=ONE)
    bench.group("g", 2)
    bench.group("h", 2)
    for number in range(2):  # interleaved, as two jobs would create them
        bench.pods(f"g{number}", gang="g", requests=CPU)
        bench.pods(f"h{number}", gang="h", requests=CPU)
    assert set(bench.run(60.0)) == {"g0", "g1"}
    bench.gone("g0", "g1")
    assert set(bench.run(60.0)) == {"h0", "h1"}
    bench.check()


def test_119_member_that_fits_nowhere_does_not_block_a_quorum() -> None:
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.group("g", 2)
    bench.pods("big", gang="g", requests={"cpu": "8"}, priority=5)
    bench.pods("p0", "p1", gang="g", requests=CPU)
    assert set(bench.run(5.0)) == {"p0", "p1"}
    assert "Insufficient cpu" in bench.why["big"]
    bench.check()


def test_gang_with_a_gated_member_waits_until_it_may_be_tried() -> None:
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.group("g", 2)
    bench.pods("p0", gang="g", requests=CPU)
    bench.pods("p1", gang="g", requests=CPU, schedulingGates=[{"name": "x"}])
    assert bench.run(5.0) == {}
    gang = next(iter(bench.gangs.groups))
    assert gang.message == "waits for minMember: 1 of 2 pods may be scheduled"
    assert bench.why["p0"] == "waits until 2 more pods of pod group default/g may be scheduled"
    bench.check()


class Flaky:
    """Reserves everything, but answers otherwise for one pod."""

    def __init__(self, bad: str, code: Code) -> None:
        self.bad, self.code = bad, code
        self.booked: list[str] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if pod.pod.metadata.name == self.bad:
            return Status(self.code, ("no",))
        self.booked.append(pod.uid)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if pod.uid in self.booked:
            self.booked.remove(pod.uid)


def test_120_rollback_restores_every_row_share_and_reservation() -> None:
    """The third of four members is refused: the columns, the quota and the plugin's books are as before."""
    flaky = Flaky("p2", Code.UNSCHEDULABLE)
    bench = Bench(Plugin("Flaky", reserve=flaky))
    bench.nodes("a", "b", capacity={"cpu": "4", "memory": "4Gi", "pods": "10"})
    bench.quota("q", cpu="10")
    bench.pods("x", requests=CPU, labels={"grange.dev/queue": "q"})
    bench.run()
    flaky.booked.clear()
    bench.cycle.refresh()
    table = bench.cycle.snapshot.table
    before = (
        table.amounts("cpu", slice(2))[1].tolist(),
        table.amounts("pods", slice(2))[1].tolist(),
    )
    bench.group("g", 4, queue="q")
    bench.pods(*names("p", 4), gang="g", requests=CPU)
    assert set(bench.run()) == {"x"}
    bench.cycle.refresh()
    assert (
        table.amounts("cpu", slice(2))[1].tolist(),
        table.amounts("pods", slice(2))[1].tolist(),
    ) == before
    assert bench.gangs.quotas.used("q")["cpu"] == 1000
    assert flaky.booked == []
    assert bench.gangs.rollbacks == bench.gangs.attempts > 0
    assert "gang wants 4, room for 2" in bench.why["p0"]
    bench.check()


@pytest.mark.parametrize("big", [False, True])
def test_119_error_in_one_member_aborts_all_and_is_retried(*, big: bool) -> None:
    """Though enough others would do, and though a member was refused before; no event is needed."""
    flaky = Flaky("p1", Code.ERROR)
    bench = Bench(Plugin("Flaky", reserve=flaky))
    bench.nodes("a", capacity={"cpu": "4", "memory": "4Gi", "pods": "10"})
    bench.group("g", 2)
    if big:
        bench.pods("big", gang="g", requests={"cpu": "8"}, priority=5)
    bench.pods(*names("p", 4), gang="g", requests=CPU)
    assert bench.run() == {}
    assert flaky.booked == []
    assert (bench.cache.assumed_count, bench.gangs.attempts) == (0, 1)
    leader = "big" if big else "p0"
    assert bench.why[leader] == "0/1 nodes are available: no."
    assert pool_of(bench.queue, f"uid-{leader}") is SubQueue.ERROR_BACKOFF
    assert not bench.gangs.wait_line.for_nodes  # no nodes are kept for it
    flaky.code = Code.SUCCESS
    assert {"p0", "p1"} <= set(bench.run(3.0))
    bench.check()


class _Raising(Flaky):
    """Raises for the bad pod."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        status = super().reserve(state, pod, node_name)
        if self.code is Code.ERROR and not status.ok:
            raise RuntimeError("a bug")
        return status


def test_119_bug_met_by_one_member_leaves_nothing_of_the_gang() -> None:
    """None stays assumed, all are put aside at once, and the leader brings them back."""
    raising = _Raising("p2", Code.ERROR)
    bench = Bench(Plugin("Raising", reserve=raising))
    bench.nodes("a", capacity={"cpu": "4", "memory": "4Gi", "pods": "10"})
    bench.group("g", 4)
    bench.pods(*names("p", 4), gang="g", requests=CPU)
    with pytest.raises(RuntimeError, match="a bug") as caught:
        bench.run()
    outcome = bench.loop.handle_bug(caught.value, bench.now)
    assert isinstance(outcome, Batch)
    assert (raising.booked, bench.cache.assumed_count) == ([], 0)
    assert pool_of(bench.queue, "uid-p0") is SubQueue.ERROR_BACKOFF
    assert {pool_of(bench.queue, f"uid-{name}") for name in ("p1", "p2", "p3")} == {
        SubQueue.UNSCHEDULABLE
    }
    assert bench.loop.handle_bug(caught.value, bench.now) is None  # no pod is being tried
    raising.code = Code.SUCCESS
    assert set(bench.run(3.0)) == set(names("p", 4))
    bench.check()


def test_surplus_members_are_placed_one_by_one_after_the_quorum() -> None:
    bench = Bench()
    bench.nodes("a", "b", "c", capacity=ONE)
    bench.group("g", 2)
    bench.pods(*names("p", 5), gang="g", requests=CPU)
    assert set(bench.run(3.0)) == {"p0", "p1", "p2"}
    assert bench.why["p3"] == (
        "0/3 nodes are available: 3 Insufficient cpu."
        " preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
    )
    bench.nodes("d", capacity=ONE)
    bench.queue.move(NODE_ADD, bench.now, None, builders.node("d", capacity=ONE))
    assert len(bench.run(15.0)) == 4
    bench.check()


def test_a_member_that_is_lost_comes_back_by_itself() -> None:
    """The gang runs with three of four; the replacement does not wait for three others."""
    bench = Bench()
    bench.nodes("a", "b", capacity={"cpu": "2", "memory": "4Gi", "pods": "10"})
    bench.group("g", 4)
    bench.pods(*names("p", 4), gang="g", requests=CPU)
    assert len(bench.run()) == 4
    bench.gone("p1", "p2")
    bench.pods("p1b", gang="g", requests=CPU)
    assert set(bench.run(20.0)) == {"p0", "p3", "p1b"}
    bench.gone("p0", "p3", "p1b")  # nothing is left: it is a gang again
    bench.pods("q0", "q1", "q2", gang="g", requests=CPU)
    assert bench.run(20.0) == {}
    bench.pods("q3", gang="g", requests=CPU)
    assert len(bench.run(20.0)) == 4


def test_deleted_member_of_a_waiting_gang_lets_others_wake() -> None:
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.pods("x", requests=CPU)
    bench.run()
    bench.group("g", 2)
    bench.pods(*names("p", 4), gang="g", requests=CPU)
    assert set(bench.run(20.0)) == {"x"}
    bench.gone("p0", "p1")
    bench.gone("x")
    assert set(bench.run(20.0)) == {"p2", "p3"}


def test_two_gangs_recreated_while_the_old_end_never_deadlock() -> None:
    """Nodes become free one by one; if each gang took some, neither would ever have enough."""
    bench = Bench()
    bench.nodes("a", "b", "c", "d", capacity=ONE)
    for name in "gh":
        bench.group(name, 2)
        bench.pods(f"{name}0", f"{name}1", gang=name, requests=CPU)
    assert len(bench.run(1.0)) == 4
    nodes = {name: bench.where[name] for name in ("g1", "h1")}
    bench.terminate("g0", "g1", "h0", "h1")
    for name in ("g2", "h2", "g3", "h3"):
        bench.now += 0.1
        bench.pods(name, gang=name[0], requests=CPU)
    assert len(bench.run(5.0)) == 4
    for name, node in nodes.items():  # goes with its node
        bench.gone(name)
        bench.cache.remove_node(builders.node(node))
    bench.gone("g0")
    assert set(bench.run(15.0)) == {"h0"}
    bench.gone("h0")
    assert set(bench.run(15.0)) == {"g2", "g3"}
    bench.gone("g2", "g3")
    assert set(bench.run(15.0)) == {"h2", "h3"}


def test_members_on_their_way_out_do_not_decide_the_domain() -> None:
    bench = Bench()
    _racks(bench, {"r0": 2, "r1": 3})
    bench.group("g", 2, topology={"key": "rack"})
    bench.pods("p0", "p1", gang="g", requests=CPU)
    assert {node.partition("-")[0] for node in bench.run().values()} == {"r0"}
    bench.terminate("p0", "p1")
    bench.pods("p2", "p3", gang="g", requests=CPU)
    where = bench.run(5.0)
    assert {where["p2"].partition("-")[0], where["p3"].partition("-")[0]} == {"r1"}


def test_waiting_pod_that_names_another_group_counts_there() -> None:
    bench = Bench()
    bench.nodes("a", capacity={"cpu": "10", "pods": "50"})
    bench.group("g", 2)
    bench.group("h", 2)
    bench.pods("p0", gang="g", requests=CPU)
    bench.run(1.0)
    bench.relabel("p0", "h")
    bench.pods("p1", gang="g", requests=CPU)
    assert bench.run(3.0) == {}  # one of two here, one of two there
    bench.pods("p2", gang="g", requests=CPU)
    assert set(bench.run(3.0)) == {"p1", "p2"}
    bench.pods("p3", gang="h", requests=CPU)
    assert set(bench.run(3.0)) == {"p0", "p1", "p2", "p3"}
    bench.check()


def test_waiting_pod_that_names_no_group_goes_by_itself() -> None:
    bench = Bench()
    bench.nodes("a", capacity=ONE)
    bench.group("g", 2)
    bench.pods("p0", gang="g", requests=CPU)
    assert bench.run(1.0) == {}
    bench.relabel("p0", "")
    assert bench.run() == {"p0": "a"}
    assert [len(gang.members) for gang in bench.gangs.groups] == [0]


def test_assumed_pod_that_leaves_its_group_leaves_no_member() -> None:
    """Otherwise its gang would be started forever, and a part of it be placed by itself."""
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.quota("q", cpu="2")
    bench.group("g", 2, queue="q")
    bench.pods("p0", "p1", gang="g", requests=CPU)
    assert len(bench.run()) == 2
    bench.relabel("p0", "")
    assert bench.gangs.quotas.used("q") == {"cpu": 1000, "pods": 1}
    bench.gone("p0", "p1")
    bench.pods("p2", gang="g", requests=CPU)
    assert bench.run(3.0) == {}


def test_failed_attempt_is_not_repeated_until_a_change() -> None:
    """Sixty-four members, a minute, no events: one look at the columns, no placing at all.

    One decision is made, to learn whether preemption could help.
    """
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.group("g", 64)
    bench.pods(*names("p", 64), gang="g", requests=CPU)
    before = bench.cycle.decisions
    bench.run(60.0)
    assert bench.gangs.attempts == 0
    assert bench.cycle.decisions == before + 1
    tried = [queued for name in names("p", 64) if (queued := bench.queue.find(f"uid-{name}"))]
    assert sum(queued.attempts for queued in tried) == 1


def test_min_resources_are_looked_at_before_any_member() -> None:
    bench = Bench()
    bench.nodes("a", capacity=ONE)
    bench.group("g", 1, minResources={"cpu": "3", "example.com/gpu": 1})
    bench.pods("p0", gang="g", requests=CPU)
    assert bench.run() == {}
    assert "minResources are not free: cpu 1 of 3, example.com/gpu 0 of 1" in bench.why["p0"]


def test_the_most_important_members_are_chosen_first() -> None:
    bench = Bench()
    bench.nodes("a", "b", capacity=ONE)
    bench.group("g", 2)
    bench.pods("low0", "low1", gang="g", requests=CPU)
    bench.pods("high", gang="g", requests=CPU, priority=3)
    assert set(bench.run(3.0)) == {"high", "low0"}


# --- parity ---------------------------------------------------------------------------------------

REQUESTS = st.sampled_from(["100m", "500m", "1", "1500m"])


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=6),
    members=st.lists(REQUESTS, min_size=1, max_size=8),
    loners=st.lists(REQUESTS, max_size=3),
    shape=st.sampled_from(["plain", "spread", "apart", "ports"]),
)
def test_a_gang_is_placed_where_its_members_would_be_one_by_one(
    nodes: list[int], members: list[str], loners: list[str], shape: str
) -> None:
    options: dict[str, Any] = {"labels": {"app": "x"}}
    selector = {"matchLabels": {"app": "x"}}
    if shape == "spread":
        rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        options["topologySpreadConstraints"] = [{**rule, "labelSelector": selector}]
    elif shape == "apart":
        term = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": term}
        options["affinity"] = {"podAntiAffinity": rules}
    elif shape == "ports":
        options["host_ports"] = [8080]
    together, alone = Bench(), Bench()
    for bench in (together, alone):
        for number, cpus in enumerate(nodes):
            capacity = {"cpu": str(cpus), "memory": "8Gi", "pods": "10"}
            bench.nodes(f"n{number}", zone=f"z{number % 2}", capacity=capacity)
        for number, cpu in enumerate(loners):
            bench.pods(f"x{number}", requests={"cpu": cpu})
        bench.run()
    together.group("g", len(members))
    for number, cpu in enumerate(members):
        together.pods(f"p{number}", gang="g", requests={"cpu": cpu}, **options)
        alone.pods(f"p{number}", requests={"cpu": cpu}, **options)
    gang, singles = together.run(), alone.run()
    placed = [f"p{number}" for number in range(len(members))]
    if all(name in singles for name in placed):
        assert gang == singles
    else:
        assert not any(name in gang for name in placed)
    together.check()


# --- topology -------------------------------------------------------------------------------------


def _racks(bench: Bench, sizes: dict[str, int]) -> None:
    for rack, size in sizes.items():
        for number in range(size):
            bench.nodes(f"{rack}-{number}", labels={"rack": rack}, capacity=ONE)


def test_required_topology_keeps_a_gang_in_one_domain() -> None:
    """Five nodes are free, but no rack has three."""
    bench = Bench()
    _racks(bench, {"r0": 2, "r1": 2, "r2": 1})
    bench.group("g", 3, topology={"key": "rack"})
    bench.pods(*names("p", 3), gang="g", requests=CPU)
    assert bench.run() == {}
    assert "gang wants 3, room for 2 in one domain of rack" in bench.why["p0"]
    bench.nodes("r1-2", labels={"rack": "r1"}, capacity=ONE)
    bench.queue.move(NODE_ADD, bench.now, None, builders.node("r1-2", capacity=ONE))
    found = bench.run(15.0)
    assert sorted(found.values()) == ["r1-0", "r1-1", "r1-2"]


def test_the_smallest_domain_that_holds_the_gang_is_taken() -> None:
    """So that the large ones stay whole; among equals the first by name."""
    bench = Bench()
    _racks(bench, {"big": 6, "fit-b": 3, "fit-a": 3, "small": 2})
    bench.group("g", 3, topology={"key": "rack"})
    bench.pods(*names("p", 3), gang="g", requests=CPU)
    assert {node.rpartition("-")[0] for node in bench.run().values()} == {"fit-a"}


def test_preferred_topology_takes_as_few_domains_as_possible() -> None:
    bench = Bench()
    _racks(bench, {"r0": 2, "r1": 4, "r2": 1, "r3": 1, "r4": 1, "r5": 1, "r6": 1})
    bench.group("g", 6, topology={"key": "rack", "mode": "Preferred"})
    bench.pods(*names("p", 6), gang="g", requests=CPU)
    assert {node.partition("-")[0] for node in bench.run().values()} == {"r0", "r1"}


def test_preferred_topology_does_without_if_it_must() -> None:
    bench = Bench()
    bench.nodes("plain0", "plain1", capacity=ONE)
    bench.group("g", 2, topology={"key": "rack", "mode": "Preferred"})
    bench.pods("p0", "p1", gang="g", requests=CPU)
    assert len(bench.run()) == 2


def test_the_rest_of_a_gang_joins_its_domain() -> None:
    """Members were bound before a restart: the missing ones go where they are."""
    bench = Bench()
    _racks(bench, {"r0": 4, "r1": 2})
    bench.pods("p0", requests=CPU, labels={"scheduling.x-k8s.io/pod-group": "g"})
    bench.queue.delete("uid-p0")
    info = bench.infos["p0"].on("r0-1")
    bench.cache.add_pod(info)
    bench.gangs.handlers.update_pod(info.pod, 0.0)
    bench.group("g", 3, topology={"key": "rack"})
    bench.pods("p1", "p2", gang="g", requests=CPU)
    assert {node.partition("-")[0] for node in bench.run(5.0).values()} == {"r0"}


def test_topology_and_the_pods_own_affinity_hold_together() -> None:
    bench = Bench()
    _racks(bench, {"r0": 3, "r1": 3})
    term = {"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["r0"]}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    bench.group("g", 2, topology={"key": "rack"})
    bench.pods("p0", "p1", gang="g", requests=CPU, affinity=affinity)
    assert {node.partition("-")[0] for node in bench.run().values()} == {"r1"}


# --- who comes first ------------------------------------------------------------------------------


@pytest.mark.parametrize("overtakes", [3, 10])
def test_small_pods_cannot_starve_a_large_gang(overtakes: int) -> None:
    """Pods of five seconds arrive every second and would fill the cluster forever."""
    bench = Bench(overtakes=overtakes)
    bench.nodes(*names("n", 4), capacity=ONE)
    bench.pods(*names("first", 4), requests=CPU)
    bench.run()
    ends = {name: 1.0 + at for at, name in enumerate(names("first", 4))}
    bench.group("g", 3)
    bench.pods(*names("g", 3), gang="g", requests=CPU)
    started = None
    for second in range(200):
        for name in [name for name, end in ends.items() if end <= second and name in bench.where]:
            bench.gone(name)
        bench.pods(f"s{second}", requests=CPU)
        bench.run(1.0)
        for name in bench.where:
            ends.setdefault(name, second + 5.0)
        bench.check()
        if "g0" in bench.where:
            started = second
            break
    assert started is not None
    small = [name for name in bench.order if name.startswith("s")]
    overtook = small.index(small[-1]) + 1 if small else 0
    # The overtakes that are allowed, and what the one node that is not kept takes meanwhile.
    assert overtook <= overtakes + 10
    # Then at most the longest of the pods that run has to end.
    assert started <= overtakes * 2 + 25


def test_others_use_the_nodes_that_are_not_kept() -> None:
    bench = Bench(overtakes=1)
    bench.nodes(*names("n", 3), capacity=ONE)
    bench.pods("a", "b", requests=CPU)
    bench.run()
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests=CPU)
    bench.run(1.0)
    bench.pods("over", requests=CPU)  # overtakes: the third node
    bench.run()
    kept = set(bench.gangs.reservation.nodes)
    assert len(kept) == 2
    free = next(name for name in names("n", 3) if name not in kept)
    # The pod on the node that is not kept ends: the next pod may have it, but only that.
    bench.gone(next(name for name, node in bench.where.items() if node == free))
    bench.pods("c", "d", requests=CPU)
    assert bench.run(12.0)["c"] == free
    assert "d" not in bench.where
    taint = "node(s) had untolerated taint {grange.dev/reserved-for: default/g}"
    assert f"2 {taint}" in bench.why["d"]
    for name in [name for name, node in bench.where.items() if node in kept]:
        bench.gone(name)
    assert {"g0", "g1"} <= set(bench.run(15.0))
    assert bench.gangs.reservation.nodes == {}
    bench.gone("g0", "g1")
    assert "d" in bench.run(15.0)


def test_pods_before_the_gang_may_use_reserved_nodes() -> None:
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=ONE)
    bench.pods("x", requests=CPU)
    bench.run()
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests=CPU)
    bench.run(1.0)
    bench.pods("small", requests={"cpu": "100m"})
    bench.run()
    assert len(bench.gangs.reservation.nodes) == 2
    bench.gone("small")
    bench.pods("urgent", requests=CPU, priority=10)
    assert "urgent" in bench.run(5.0)


def test_nothing_is_kept_for_a_gang_that_could_never_fit() -> None:
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=ONE)
    bench.group("huge", 5)
    bench.pods(*names("huge", 5), gang="huge", requests=CPU)
    bench.run(1.0)
    bench.pods("x", "y", requests=CPU)
    assert len(bench.run(5.0)) == 2
    assert bench.gangs.reservation.nodes == {}
    bench.nodes("c", "d", "e", capacity=ONE)  # now it could
    bench.pods("z", requests=CPU)
    bench.run(5.0)
    assert len(bench.gangs.reservation.nodes) == 5


def test_heartbeats_give_no_hope_to_a_gang_that_could_never_fit() -> None:
    """It would be the first in line again and again, and nothing be kept for the one behind it."""
    bench = Bench(overtakes=4)
    bench.nodes("a", "b", capacity=ONE)
    bench.group("huge", 5)
    bench.pods(*names("huge", 5), gang="huge", requests=CPU)
    bench.pods("s0", requests=CPU)
    bench.run(1.0)
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests=CPU)
    bench.run(1.0)
    for second in range(1, 30):
        bench.nodes("a", "b", capacity=ONE)
        bench.pods(f"s{second}", requests=CPU)
        bench.run(1.0)
        if second % 3 == 0:  # never both at once
            on = [name for name in bench.where if name.startswith("s")]
            bench.gone(*on[:1])
    assert {"g0", "g1"} <= set(bench.run(15.0))


def test_a_node_that_comes_again_as_it_was_gives_hope() -> None:
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=ONE)
    bench.pods("x", requests=CPU)
    bench.run()
    node = next(name for name in "ab" if name != bench.where["x"])
    bench.cache.remove_node(builders.node(node, capacity=ONE))
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests={"cpu": "600m"})
    bench.run(1.0)
    bench.gone("x")
    bench.pods("y", requests={"cpu": "500m"})
    bench.run(1.0)
    assert [gang.is_infeasible for gang in bench.gangs.groups] == [True]
    bench.nodes(node, capacity=ONE)
    assert [gang.is_infeasible for gang in bench.gangs.groups] == [False]


def test_gang_recreated_with_smaller_members_is_tried_again() -> None:
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=ONE)
    bench.pods("x", requests=CPU)
    bench.run()
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests={"cpu": "2"})
    bench.run(1.0)
    bench.pods("y", requests={"cpu": "100m"})
    bench.run(1.0)
    assert [gang.is_infeasible for gang in bench.gangs.groups] == [True]
    bench.gone("g0", "g1")
    bench.pods("h0", "h1", gang="g", requests={"cpu": "800m"})
    bench.run(1.0)
    bench.pods("z", requests={"cpu": "100m"})
    bench.run(1.0)
    assert {*bench.gangs.reservation.nodes} == {"a", "b"}


def test_a_gang_whose_time_is_over_makes_way_and_starts_again() -> None:
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=ONE)
    bench.pods("x", requests=CPU)
    bench.run()
    bench.group("g", 2, scheduleTimeoutSeconds=30)
    bench.pods("g0", "g1", gang="g", requests=CPU)
    bench.run(1.0)
    bench.pods("small", requests={"cpu": "100m"})
    bench.run(1.0)
    assert bench.gangs.reservation.owner == "default/g"
    bench.gone("small")
    bench.pods("later", requests=CPU)
    bench.run(20.0)
    assert "later" not in bench.where
    bench.run(15.0)
    assert "later" in bench.where
    assert [gang.timeouts for gang in bench.gangs.groups] == [1]


def test_a_gang_that_another_scheduler_placed_waits_no_more() -> None:
    """It came to its turn while ours was over: no nodes are kept for a gang that runs."""
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=ONE)
    bench.pods("old", requests=CPU)
    bench.run()
    bench.group("g", 2)
    bench.pods("g0", "g1", gang="g", requests=CPU)
    bench.run(1.0)
    bench.pods("late0", requests=CPU)
    bench.run()
    bench.gone("old", "late0")
    assert bench.gangs.reservation.owner == "default/g"
    for name, node in (("g0", "a"), ("g1", "b")):
        bound = bench.infos[name].on(node)
        bench.queue.delete(bound.uid)
        bench.cache.add_pod(bound)
        bench.gangs.handlers.update_pod(bound.pod, bench.now)
    assert bench.gangs.reservation.owner == ""
    assert not bench.gangs.wait_line.for_nodes
    assert bench.gangs.wait_line.head is None


def test_a_deleted_node_leaves_a_gang_as_if_it_had_not_been() -> None:
    """No node offers the resource: the filters state it, and the room is not counted."""
    why = []
    for others in ([], ["b"]):
        made = Bench()
        made.nodes("a", capacity={"cpu": "4", "pods": "10"})
        made.nodes(*others, capacity={"cpu": "4", "pods": "10", "example.com/dongle": "4"})
        made.pods("first")
        assert made.run() == {"first": "a"}
        for name in others:
            made.cache.remove_node(builders.node(name))
        made.group("g", 1)
        made.pods("p", gang="g", requests={"example.com/dongle": "1"})
        made.run()
        why.append((made.why["p"], made.rejectors["p"]))
    assert why[0] == why[1]
