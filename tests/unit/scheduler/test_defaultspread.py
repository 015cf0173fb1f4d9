"""Pods of a Service are spread although they do not ask for it; and the engine does it as the reference."""

from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import PROFILE, ZONE
from tests.support.scheduler_world import world
from tests.support.topology_reference import assert_agrees
from tests.unit.scheduler.test_handlers import Scene
from tests.unit.scheduler.test_topology_plugins import VERBS, ClusterGenerator, History, World

from grange.api.kinds import SERVICE
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, NAME_LABEL
from grange.api.kinds.service import Service
from grange.api.kinds.workloads import CoreReplicationController, Workload
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler.defaultspread import DefaultSpread
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import reference
from grange.scheduler.framework import CycleState
from grange.scheduler.podinfo import PodInfo
from grange.sim import builders


def service(name: str, namespace: str = "default", **selector: str) -> Service:
    document = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector},
    }
    return msgspec.convert(document, Service)


def keys(found: DefaultSpread, pod: Pod) -> list[tuple[str, int]]:
    return [(item.key, item.max_skew) for item in found.of(pod)]


def test_pods_of_a_service_are_spread_over_hosts_and_zones() -> None:
    found = DefaultSpread()
    assert found.put(service("web", app="web"))
    both = [("kubernetes.io/hostname", 3), (ZONE, 5)]
    assert keys(found, builders.pod("p", labels={"app": "web", "x": "y"})) == both
    assert keys(found, builders.pod("p", labels={"app": "db"})) == []
    assert keys(found, builders.pod("p", namespace="other", labels={"app": "web"})) == []
    own = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    stated = builders.pod("p", labels={"app": "web"}, topologySpreadConstraints=[own])
    assert keys(found, stated) == [], "a pod that sets how is spread that way alone"
    assert not found.put(service("web", app="web")), "nothing changed"
    assert found.remove(service("web", app="web"))
    assert keys(found, builders.pod("p", labels={"app": "web"})) == []
    assert not found.remove(service("web"))


def test_services_without_a_selector_select_nothing() -> None:
    found = DefaultSpread()
    assert not found.put(service("external"))
    assert keys(found, builders.pod("p", labels={"app": "web"})) == []


def test_pods_selected_by_all_services_count() -> None:
    found = DefaultSpread()
    found.put(service("web", app="web"))
    found.put(service("public", tier="front"))
    (first, _) = found.of(builders.pod("p", labels={"app": "web", "tier": "front"}))
    assert first.selector.labels is not None
    assert [str(item) for item in first.selector.labels] == ["app=web", "tier=front"]
    assert not first.hard


def owned(kind: str, uid: str = "u", **options: Any) -> Pod:
    """A pod of a controller."""
    version = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}.get(kind, "v1")
    if options.pop("ours", False):
        version = "grange.dev/v1alpha1"
    reference = {"apiVersion": version, "kind": kind, "name": "c", "uid": uid, "controller": True}
    document = builders.pod_document("p", uid="p", **options)
    document["metadata"]["ownerReferences"] = [reference]
    return msgspec.convert(document, Pod)


def workload(view: type[Any], selector: dict[str, Any]) -> Any:
    document = {
        "metadata": {"name": "c", "namespace": "default", "uid": "u"},
        "spec": {"selector": selector},
    }
    return msgspec.convert(document, view)


def selected(found: DefaultSpread, pod: Pod) -> list[str]:
    constraints = found.of(pod)
    if not constraints:
        return []
    assert constraints[0].selector.labels is not None
    return [str(item) for item in constraints[0].selector.labels]


def test_pods_of_a_replicaset_are_spread_by_its_selector() -> None:
    found = DefaultSpread()
    expression = {"key": "tier", "operator": "Exists"}
    replicas = workload(Workload, {"matchLabels": {"app": "a"}, "matchExpressions": [expression]})
    pod = owned("ReplicaSet", labels={"app": "a", "tier": "x"})
    assert keys(found, pod) == []
    assert found.put_workload(replicas)
    assert not found.put_workload(replicas)
    assert selected(found, pod) == ["app=a", "tier"]
    found.put(service("web", tier="x"))
    assert selected(found, pod) == ["tier=x", "app=a", "tier"], "both have to select a pod"
    assert found.remove_workload(replicas)
    assert selected(found, pod) == ["tier=x"]


def test_pods_of_a_core_replicationcontroller_are_spread() -> None:
    found = DefaultSpread()
    found.put_workload(workload(CoreReplicationController, {"app": "a"}))
    assert selected(found, owned("ReplicationController", labels={"app": "a"})) == ["app=a"]
    assert selected(found, owned("ReplicationController", uid="other")) == []


def test_pods_of_our_replicationcontroller_are_spread() -> None:
    labels = {NAME_LABEL: "c", ID_LABEL: "u", "app": "a"}
    pod = owned("ReplicationController", labels=labels, ours=True)
    assert selected(DefaultSpread(), pod) == [f"{NAME_LABEL}=c", f"{ID_LABEL}=u"]


def test_pods_of_other_controllers_are_not_spread() -> None:
    assert selected(DefaultSpread(), owned("Job", labels={"app": "a"})) == []


def test_workload_that_comes_late_spreads_its_waiting_pods(log: Logger) -> None:
    scene = Scene(log)
    scene.handlers.pod_added(owned("StatefulSet", labels={"app": "a"}))
    scene.handlers.pod_added(builders.pod("other", labels={"app": "a"}))

    def constraints() -> list[int]:
        return [len(queued.info.spread) for queued in scene.queue.waiting()]

    assert constraints() == [0, 0]
    stateful = workload(Workload, {"matchLabels": {"app": "a"}})
    scene.handlers.workload_updated(stateful)
    assert sorted(constraints()) == [0, 2]
    scene.handlers.workload_deleted(stateful)
    assert constraints() == [0, 0]


class Spread(World):
    """Pods in colour belong to a Service, some nodes have no zone."""

    def __init__(self, few_domains: int = 64) -> None:
        super().__init__(few_domains)
        self.defaults = DefaultSpread()
        self.defaults.put(service("blue", colour="blue"))
        self.defaults.put(service("red", colour="red"))
        self.spread = 0

    def decide(self, pod: Pod) -> str | Diagnosis:
        self.cache.update_node_info_snapshot(self.snapshot)
        info = PodInfo.of(pod)
        info.spread = info.spread or self.defaults.of(pod)
        self.spread += bool(info.spread)
        found = self.engine.decide(info)
        assert found == reference.decide(PROFILE, CycleState(), info, self.snapshot)
        assert_agrees(PROFILE, info, self.snapshot)
        return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_check_118_defaults_keep_the_parity(seed: int) -> None:
    generator = ClusterGenerator(seed)
    shapes = [
        {**generator.shape(), "topologySpreadConstraints": []}
        for _ in range(generator.rng.integer(2, 5))
    ]
    history = History(Spread(generator.rng.choice([0, 4, 64])), shapes)
    for number in range(generator.rng.integer(3, 14)):
        history.run("node", generator.node(number))
    for _ in range(40):
        verb, number = generator.rng.choice(VERBS), generator.rng.integer(0, 99)
        history.run(verb, generator.node(number % 14) if verb == "node" else number)


def names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def test_replicas_of_a_service_spread_despite_an_emptier_node() -> None:
    """What the scores of resources alone would not do."""
    made = Spread()
    made.nodes("small", zone="a")
    made.nodes("large", zone="b", capacity={"cpu": "400", "memory": "3200Gi", "pods": "1100"})
    made.nodes("zoneless", capacity={"cpu": "4", "memory": "32Gi", "pods": "110"})
    blue: dict[str, Any] = {"labels": {"colour": "blue"}, "requests": {"cpu": "500m"}}
    placed = [made.place(builders.pod(name, **blue)) for name in names(6)]
    assert {str(item) for item in placed} == {"large", "small", "zoneless"}
    plain: dict[str, Any] = {"requests": {"cpu": "500m"}}
    assert [made.place(builders.pod(f"x{name}", **plain)) for name in names(6)] == ["large"] * 6


def test_nodes_without_a_zone_share_the_domain_of_an_empty_one() -> None:
    """kube-scheduler counts by the label's value, which is empty where there is no label."""
    made = Spread()
    made.nodes("empty", labels={ZONE: ""})
    made.nodes("zoned", zone="z")
    made.nodes("zoneless", capacity={"cpu": "4", "memory": "32Gi", "pods": "5"})
    blue: dict[str, Any] = {"labels": {"colour": "blue"}}
    for number in range(5):
        made.put(f"full{number}", "zoneless", **blue)
    made.put("other", "zoned", **blue)
    assert made.place(builders.pod("p", **blue)) == "zoned"


async def test_changed_service_changes_preferences_of_waiting_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        scheduler = await made.start_scheduler()
        await made.add_pods("p", labels={"app": "web"})
        document = {
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
        await made.settle()
        uid = (await made.pod("p")).metadata.uid

        def spread() -> int:
            queued = scheduler.queue.find(uid)
            assert queued is not None
            return len(queued.info.spread)

        assert spread() == 0
        await made.client.create(SERVICE, document, "default")
        await made.settle()
        assert spread() == 2
        await made.client.delete(SERVICE, "web", "default")
        await made.settle()
        assert spread() == 0
