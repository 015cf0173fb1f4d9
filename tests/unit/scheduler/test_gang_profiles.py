"""Gangs under other profiles than the default one: what their plugins count is what counts."""

import pytest
from tests.support.gang_cluster import Bench, names

from grange.scheduler import plugins
from grange.scheduler.framework import Plugin, Profile
from grange.scheduler.gangs.pod_overrides import override_all, past_reservations
from grange.scheduler.plugins import noderesourcesfit
from grange.scheduler.podinfo import PodInfo
from grange.sim import builders

WIDGET = "example.com/widget"


def but_for(*ignored: str, groups: tuple[str, ...] = ()) -> list[Plugin]:
    """The default plugins, with a NodeResourcesFit that leaves resources out."""
    args = noderesourcesfit.NodeResourcesFitArgs(
        ignored_resources=ignored, ignored_resource_groups=groups
    )
    fit = noderesourcesfit.make(args)
    return [fit if item.name == fit.name else item for item in plugins.DEFAULT]


def without(*left_out: str) -> list[Plugin]:
    return [item for item in plugins.DEFAULT if item.name not in left_out]


@pytest.mark.parametrize(
    "base",
    [but_for(WIDGET), but_for(groups=("example.com",)), without("NodeResourcesFit")],
    ids=["ignored", "group ignored", "no member counts"],
)
def test_a_gang_is_not_refused_for_amounts_that_no_plugin_counts(base: list[Plugin]) -> None:
    bench = Bench(base=base)
    bench.nodes("a", capacity={"cpu": "8", "memory": "8Gi", "pods": "10", WIDGET: "1"})
    bench.group("g", 3)
    bench.pods(*names("p", 3), gang="g", requests={WIDGET: "1"})
    assert bench.run(1.0) == dict.fromkeys(names("p", 3), "a")


def test_a_gang_that_shares_gpus_is_whole_or_not_at_all() -> None:
    """In sum there is room for a third, but no device has it."""
    bench = Bench()
    bench.nodes(
        "a", capacity={"cpu": "8", "memory": "8Gi", "pods": "10", "grange.dev/gpu-milli": "2000"}
    )
    need = {"grange.dev/gpu-milli": "600"}
    bench.group("g", 3)
    bench.pods(*names("p", 3), gang="g", requests=need)
    assert bench.run(1.0) == {}
    assert "gang wants 3, room for 2" in bench.why["p0"]
    bench.check()
    bench.nodes(
        "b", capacity={"cpu": "8", "memory": "8Gi", "pods": "10", "grange.dev/gpu-milli": "1000"}
    )
    bench.queue.activate(["uid-p0"], bench.now)
    assert len(bench.run(12.0)) in (0, 3)
    bench.check()


def test_a_gang_leaves_room_for_nominated_pods() -> None:
    """A more important pod is nominated to one of two nodes; the gang needs both."""
    bench = Bench()
    capacity = {"cpu": "1", "memory": "8Gi", "pods": "10"}
    bench.nodes("a", "b", capacity=capacity)
    bench.pods("high", priority=10, requests={"cpu": "1"})
    bench.queue.delete(bench.infos["high"].uid)
    bench.cycle.nominator.put(bench.infos["high"], "a")
    bench.group("g", 2)
    bench.pods("p0", "p1", gang="g", requests={"cpu": "1"})
    assert bench.run(1.0) == {}
    assert "gang wants 2 (cpu 1 each), room for 1, 2 Insufficient cpu" in bench.why["p0"]
    bench.cycle.nominator.remove(bench.infos["high"].uid)
    bench.queue.activate([bench.infos["p0"].uid], bench.now)
    assert sorted(bench.run(12.0)) == ["p0", "p1"]
    bench.check()


def test_overrides_keep_what_a_signature_leaves_out() -> None:
    """Members of one signature differ by name, labels and priority; others by their own affinity."""
    profile = Profile(plugins.DEFAULT)
    toleration = {"key": "spot", "operator": "Exists"}
    pods = [
        PodInfo.of(builders.pod(name, **options))
        for name, options in (
            ("a", {}),
            ("b", {"priority": 7, "labels": {"app": "x"}}),
            ("c", {"nodeSelector": {"disk": "ssd"}, "tolerations": [toleration]}),
        )
    ]
    found = override_all(profile, pods, past_reservations)
    assert len({profile.sign(info) for info in pods}) == 2
    assert [info.signature for info in found[:2]] == [found[0].signature] * 2
    alone = [past_reservations(info) for info in pods]
    for info in alone:
        profile.sign(info)
    assert found == alone
