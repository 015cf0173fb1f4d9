"""Which nodes are kept for a gang whose members refuse each other's company, want host ports, or
must be spread."""

from typing import Any

import pytest
from tests.support.gang_cluster import Bench, names
from tests.support.scheduler_cluster import HOST, ZONE

from grange.base.rng import Stream

APART: dict[str, Any] = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "x"}},
            }
        ]
    }
}
PORT = [
    {
        "name": "c",
        "command": ["true"],
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "1500m"}},
    }
]


@pytest.mark.parametrize("rule", [{"affinity": APART}, {"containers": PORT}], ids=["apart", "port"])
def test_small_pods_cannot_starve_a_gang_of_one_pod_a_host(rule: dict[str, Any]) -> None:
    """Two nodes have the amounts for all four members; four nodes must be kept all the same."""
    bench, rng = Bench(overtakes=3), Stream(1)
    bench.nodes(*names("n", 4), capacity={"cpu": "4", "pods": "50"})
    live = names("s", 16)
    bench.pods(*live, requests={"cpu": "1"})
    bench.run(1)
    bench.group("g", 4)
    bench.now += 1
    options = rule if "containers" in rule else {"requests": {"cpu": "1500m"}, **rule}
    bench.pods(*names("g", 4), gang="g", labels={"app": "x"}, **options)
    bench.run(1)
    for number in range(16, 216, 2):
        bench.now += 1
        more = [f"s{number}", f"s{number + 1}"]
        bench.pods(*more, requests={"cpu": "1"})
        live = [*live, *more]
        bench.run(0)
        running = [name for name in live if name in bench.where]
        for name in rng.shuffled(running)[:2]:
            bench.gone(name)
            live.remove(name)
        bench.run(0)
        if "g0" in bench.where:
            break
    assert len({bench.where.get(name) for name in names("g", 4)} - {None}) == 4


FOUR = {"cpu": "4", "pods": "50"}


@pytest.mark.parametrize(("taken", "left"), [("a", "b"), ("b", "a")])
def test_reservation_counts_the_pod_that_was_just_placed(taken: str, left: str) -> None:
    """Two nodes are equal until the pod that overtakes the gang is placed on one of them."""
    bench = Bench(overtakes=1)
    bench.nodes("a", "b", capacity=FOUR)
    bench.pods("x", "y", requests={"cpu": "1"})
    bench.run()
    bench.group("g", 2, topology={"key": HOST, "mode": "Required"})
    bench.pods("g0", "g1", gang="g", requests={"cpu": "2"})
    bench.run()
    bench.now += 1
    bench.pods("z", requests={"cpu": "2"}, nodeSelector={HOST: taken})
    bench.run()
    assert bench.where["z"] == taken
    assert [*bench.gangs.reservation.nodes] == [left]


def spread(key: str = ZONE, skew: int = 1, **more: Any) -> dict[str, Any]:
    """A hard constraint on the pods of the gang."""
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        **more,
    }


def zones(bench: Bench, **sizes: int) -> None:
    """So many nodes of four CPUs in each zone."""
    for zone, size in sizes.items():
        bench.nodes(*names(zone, size), labels={ZONE: zone}, capacity=FOUR)


def kept(bench: Bench) -> dict[str, int]:
    """How many nodes of each zone are kept for the gang."""
    found: dict[str, int] = {}
    for name in bench.gangs.reservation.nodes:
        found[name[0]] = found.get(name[0], 0) + 1
    return found


def fill(bench: Bench, zone: str, nodes: int, **options: Any) -> None:
    """Every node of a zone is full of small pods."""
    here = {"nodeSelector": {ZONE: zone}, "requests": {"cpu": "1"}, **options}
    bench.pods(*names(f"fill-{zone}", 4 * nodes), **here)
    bench.run()


def wait_overtaken(bench: Bench, size: int, *rules: dict[str, Any], **options: Any) -> None:
    """The gang waits, and two pods are placed before it: nodes are kept for it by then."""
    bench.group("g", size)
    bench.now += 1
    options.setdefault("requests", {"cpu": "3"})
    options.setdefault("labels", {"app": "x"})
    bench.pods(*names("g", size), gang="g", topologySpreadConstraints=[*rules], **options)
    bench.run()
    bench.now += 1
    bench.pods("s0", "s1")
    bench.run()
    assert "g0" not in bench.where
    assert {"s0", "s1"} <= set(bench.where)


def test_nodes_are_kept_in_the_domains_a_spread_gang_needs() -> None:
    """The zone with more room would hold all of it by amounts alone, and in vain."""
    bench = Bench(overtakes=2)
    zones(bench, a=4, b=4)
    fill(bench, "b", 4)
    wait_overtaken(bench, 4, spread())
    assert kept(bench) == {"a": 2, "b": 2}


def test_small_pods_cannot_starve_a_gang_that_must_be_spread() -> None:
    """In the full zone two pods end every second and two come; never would a node be empty."""
    bench, rng = Bench(overtakes=2), Stream(1)
    zones(bench, a=4, b=4)
    fill(bench, "b", 4)
    live = names("fill-b", 16)
    wait_overtaken(bench, 4, spread())
    for number in range(100):
        bench.now += 1
        more = [f"t{number}-0", f"t{number}-1"]
        bench.pods(*more, nodeSelector={ZONE: "b"}, requests={"cpu": "1"})
        live += more
        bench.run()
        for name in rng.shuffled([name for name in live if name in bench.where])[:2]:
            bench.gone(name)
            live.remove(name)
        bench.run()
        if "g0" in bench.where:
            break
    where = sorted(bench.where[name][0] for name in names("g", 4))
    assert where == ["a", "a", "b", "b"]


def test_pods_that_are_there_count_for_the_domains_that_are_kept() -> None:
    """Two alike run in one zone: the gang of four belongs into the other but for one."""
    bench = Bench(overtakes=2)
    zones(bench, a=4, b=4)
    bench.pods("old0", "old1", labels={"app": "x"}, nodeSelector={ZONE: "a"})
    bench.run()
    fill(bench, "b", 4)
    wait_overtaken(bench, 4, spread())
    assert kept(bench) == {"a": 1, "b": 3}


def test_pods_that_must_end_first_do_not_make_a_gang_hopeless() -> None:
    """Next to so many alike there is no way to place it; without them there is."""
    bench = Bench(overtakes=2)
    zones(bench, a=4, b=2)
    fill(bench, "a", 4, labels={"app": "x"})
    fill(bench, "b", 2)
    wait_overtaken(bench, 4, spread())
    assert kept(bench) == {"a": 2, "b": 2}


def test_nothing_is_kept_for_a_gang_that_spread_could_never_hold() -> None:
    """A zone of one node, and a skew of one: three at most, however empty the others are."""
    bench = Bench(overtakes=2)
    zones(bench, a=4, b=1)
    wait_overtaken(bench, 4, spread())
    assert kept(bench) == {}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([spread(skew=2)], {"a": 3, "b": 2}, id="skew"),
        pytest.param([spread(skew=3, minDomains=3)], {"a": 3, "b": 2}, id="enough"),
        pytest.param([spread(skew=2, minDomains=3)], {}, id="too-few-domains"),
        pytest.param([spread(), spread(HOST)], {"a": 3, "b": 2}, id="zone-and-host"),
        pytest.param(
            [spread(labelSelector={"matchLabels": {"app": "y"}})], {"a": 4, "b": 1}, id="others"
        ),
    ],
)
def test_the_rules_of_a_constraint_hold_for_what_is_kept(
    rules: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    """Five members, a node each; four nodes of the one zone are free."""
    bench = Bench(overtakes=2)
    zones(bench, a=4, b=4)
    fill(bench, "b", 4)
    wait_overtaken(bench, 5, *rules)
    assert kept(bench) == expected


def test_domain_is_compared_only_with_those_the_gang_may_use() -> None:
    """By the node affinity policy: with ``Ignore`` the zone that is ruled out stays empty."""
    for policy, expected in (("Honor", {"a": 2, "b": 2}), ("Ignore", {})):
        bench = Bench(overtakes=2)
        zones(bench, a=4, b=4, c=1)
        fill(bench, "b", 4)
        terms = [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]
        must = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": must}}
        rule = spread(nodeAffinityPolicy=policy)
        wait_overtaken(bench, 4, rule, affinity=affinity)
        assert kept(bench) == expected


def test_members_that_are_spread_share_nodes_where_they_may() -> None:
    """Two fit on a node: as few nodes as hold the gang are kept, half of them in each zone."""
    bench = Bench(overtakes=2)
    zones(bench, a=4, b=4)
    fill(bench, "b", 4)
    wait_overtaken(bench, 8, spread(), requests={"cpu": "2"})
    assert kept(bench) == {"a": 2, "b": 2}


def test_large_spread_gang_gets_its_share_of_each_domain() -> None:
    """Zones of unlike size, hosts of unlike room: what is kept would hold it by the rules."""
    bench = Bench(overtakes=2)
    zones(bench, a=12, b=6, c=5)
    fill(bench, "c", 5)
    wait_overtaken(bench, 16, spread(), spread(HOST, 2))
    assert sorted(kept(bench).values()) == [5, 5, 6]
