"""Plugins state a rule once: what follows from it equals it, and a new plugin is one file."""

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.scheduler.test_topology_plugins import ClusterGenerator

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.pod_fields import IMAGES_LABEL
from grange.base.rng import Stream
from grange.placement.columns import Rows
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import Action, ClusterEvent, Subject
from grange.scheduler.component_config import configure
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import Engine
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.framework import CycleState, Filter, Plugin, Profile, Scope, Score
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_args import ConfigurationError
from grange.scheduler.plugin_explanation import Refusals
from grange.scheduler.plugins.nodename import NodeName
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

EXAMPLE = Path(__file__).parents[3] / "examples" / "scheduler-plugin" / "maintenance.py"
GPU = "grange.dev/gpu-milli"
FEATURE = "RestartAllContainersOnContainerExits"

# --- what follows from a rule equals it ------------------------------------------------------------


def asked(info: PodInfo) -> int:
    return info.request.resources.scalars.get(GPU, 0)


class Cluster:
    """Nodes and pods that no filter looked at, so that every rule has something to refuse."""

    def __init__(self, seed: int) -> None:
        self.random, self.generator = Stream(seed), ClusterGenerator(seed)
        self.cache, self.snapshot = Cache(), NodeInfoSnapshot()
        for number in range(self.random.integer(1, 9)):
            self.cache.update_node(None, self.node(number))
        for number in range(self.random.integer(0, 25)):
            node = f"n{self.random.integer(0, 9)}"
            info = PodInfo.of(self.pod(f"old{number}", nodeName=node))
            if self.random.integer(0, 1):
                info = info.holding(tuple(range(max(1, asked(info) // 1000))))
            self.cache.add_pod(info.pod)
        self.cache.update_node_info_snapshot(self.snapshot)
        if self.random.integer(0, 1):  # rows are freed and used again
            self.cache.update_node(None, self.node(self.random.integer(0, 9)))
            self.cache.update_node_info_snapshot(self.snapshot)

    def node(self, number: int) -> Node:
        random = self.random
        capacity = {
            "cpu": random.choice(["1", "4"]),
            "memory": "4Gi",
            "pods": random.integer(1, 6),
            GPU: random.choice([0, 1000, 3000]),
        }
        effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
        taints = [
            {"key": key, "value": "v", "effect": random.choice(effects)}
            for key in ("k", "grange.dev/test", "node.kubernetes.io/not-ready")
            if random.integer(0, 3) == 0
        ]
        labels = {"disk": random.choice(["ssd", "hdd"])} if random.integer(0, 1) else {}
        if random.integer(0, 1):
            labels[IMAGES_LABEL] = random.choice(["true", "false"])
        node = builders.node(
            f"n{number}",
            capacity=capacity,
            labels=labels,
            taints=taints,
            unschedulable=random.integer(0, 3) == 0,
        )
        features = (FEATURE,) if random.integer(0, 1) else ()
        status = msgspec.structs.replace(node.status, declared_features=features)
        return msgspec.structs.replace(node, status=status)

    def pod(self, name: str, **options: Any) -> Pod:
        random = self.random
        requests = {"cpu": random.choice(["0", "500m", "2"])}
        if random.integer(0, 1):
            requests[GPU] = random.choice(["1", "300", "700", "1000", "1500", "2000"])
        key = random.choice(["k", "node.kubernetes.io/unschedulable", "other"])
        spec: dict[str, Any] = {
            "requests": requests,
            "host_ports": [random.integer(1, 3)] if random.integer(0, 1) else [],
            "volumes": [self.generator.volume()] if random.integer(0, 1) else [],
            "nodeSelector": {"disk": "ssd"} if random.integer(0, 1) else {},
            "tolerations": [{"key": key, "operator": "Exists"}] if random.integer(0, 1) else [],
            **options,
        }
        if random.integer(0, 4) == 0:
            spec.setdefault("nodeName", f"n{random.integer(0, 9)}")
        if random.integer(0, 1):
            rules = [{"action": "RestartAllContainers", "exitCodes": {}}]
            container = {"name": "c", "image": "web", "restartPolicyRules": rules}
            spec["initContainers"] = [container]
        return builders.pod(name, **spec)

    def selections(self) -> list[Rows]:
        """Some ways to name rows: all of them, and an array of the valid ones backwards."""
        table = self.snapshot.table
        return [table.all, np.flatnonzero(table.valid[table.all])[::-1]]

    def nodes(self, rows: Rows) -> list[NodeInfo | None]:
        table = self.snapshot.table
        numbers = np.arange(table.size)[rows].tolist()
        return [self.snapshot.by_row[row] if table.valid[row] else None for row in numbers]


def compare_filter(cluster: Cluster, one: Filter, pod: PodInfo) -> None:
    table, refused = cluster.snapshot.table, list[int]()
    for rows in cluster.selections():
        found, reasons = one.filter_rows(pod, table, rows), Counter[str]()
        refused.clear()
        for at, node in enumerate(cluster.nodes(rows)):
            if node is not None:
                status = one.filter(CycleState(), pod, node)
                assert bool(found[at]) == status.ok
                assert status.ok or status.rejected
                reasons.update(status.reasons)
                refused += [] if status.ok else [table.rows[node.name]]
        counted = Counter(dict(one.count_reasons(pod, table, np.asarray(refused, np.int64))))
        assert counted == reasons
    mask = np.zeros(table.size, np.bool_)
    mask[refused] = True
    explained = one.explain(Refusals(pod, cluster.snapshot, mask))
    for row in range(table.size):
        assert bool(explained.lacks[row]) == mask[row]
        assert not mask[row] or explained.missing(row)


def compare_score(cluster: Cluster, one: Score, pod: PodInfo) -> None:
    state = CycleState()
    for item in plugins.AVAILABLE:
        if item.pre_filter is not None:
            item.pre_filter.pre_filter(state, pod, cluster.snapshot)
    for rows in cluster.selections():
        found = one.score_rows(pod, cluster.snapshot.table, rows)
        for at, node in enumerate(cluster.nodes(rows)):
            assert node is None or found[at] == one.score(state, pod, node)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_derived_forms_equal_the_rule(seed: int) -> None:
    """Of each plugin: rows as nodes, counted reasons as reasons, obstacles where it refuses."""
    cluster = Cluster(seed)
    for number in range(4):
        pod = PodInfo.of(cluster.pod(f"p{number}"))
        for item in plugins.AVAILABLE:
            if item.filter is not None and item.filter.applies(pod):
                compare_filter(cluster, item.filter, pod)
            if item.score is not None and item.score.applies(pod):
                compare_score(cluster, item.score, pod)


def test_a_node_helps_that_begins_to_accept() -> None:
    """One that accepted before did not keep the pod waiting."""
    (hint,) = [item.hint for item in plugins.nodeunschedulable.PLUGIN.events]
    assert hint is not None
    pod = PodInfo.of(builders.pod("p"))
    closed, open_ = builders.node("n", unschedulable=True), builders.node("n")
    assert hint(pod, closed, open_)
    assert hint(pod, None, open_)
    assert not hint(pod, open_, open_)
    assert not hint(pod, open_, closed)


@pytest.mark.parametrize("request_", ["1", "nonsense"])
def test_a_deletion_helps_that_frees_a_port(request_: str) -> None:
    """Whatever else is malformed about the pod that went."""
    hint = plugins.nodeports.PLUGIN.events[0].hint
    assert hint is not None
    waiting = PodInfo.of(builders.pod("p", host_ports=[80]))
    options: dict[str, Any] = {"nodeName": "n", "requests": {"cpu": request_}}
    assert hint(waiting, builders.pod("q", host_ports=[80], **options), None)
    assert not hint(waiting, builders.pod("r", host_ports=[81], **options), None)


# --- a plugin is one file and one line -------------------------------------------------------------


def example() -> Plugin:
    spec = importlib.util.spec_from_file_location("maintenance", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin = module.PLUGIN
    assert isinstance(plugin, Plugin)
    return plugin


def enabled() -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "MaintenanceWindow"}]}}}],
    }


def test_an_example_plugin_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered, it decides, gives reasons, explains and wakes pods; then it is unknown again."""
    with monkeypatch.context() as registered:
        registered.setattr(plugins, "AVAILABLE", (*plugins.AVAILABLE, example()))
        profile = configure(enabled()).profiles.each()[0]
        cache, snapshot = Cache(), NodeInfoSnapshot()
        soon = {"example.com/maintenance": "today"}
        cache.add_node(builders.node("soon", labels=soon, capacity={"cpu": 8, "pods": 9}))
        cache.update_node_info_snapshot(snapshot)
        engine = Engine(profile, snapshot)
        pod = PodInfo.of(builders.pod("p"))
        found = engine.decide(pod)
        assert isinstance(found, Diagnosis)
        assert found.message == ("0/1 nodes are available: 1 node(s) had a maintenance window.")
        evaluation = Evaluation(profile, pod, snapshot)
        assert evaluation.missing(0) == ["had a maintenance window"]
        (remedy,) = evaluation.explanations["MaintenanceWindow"].changes(np.array([0]))
        assert (remedy.text, remedy.rows.tolist(), remedy.when) == (
            "their label example.com/maintenance is removed",
            [0],
            True,
        )
        short = PodInfo.of(builders.pod("q", activeDeadlineSeconds=60))
        assert engine.decide(short) == "soon"
        (event,) = profile.events["MaintenanceWindow"]
        assert event.event.matches(ClusterEvent(Subject.NODE, Action.NODE_LABEL))
        assert event.hint is not None
        assert event.hint(pod, builders.node("soon", labels=soon), builders.node("soon"))
    with pytest.raises(ConfigurationError, match="no plugin is called 'MaintenanceWindow'"):
        configure(enabled())


def test_filter_by_all_node_objects_is_refused() -> None:
    """A class keeps verdicts by node or by load; of scores, it follows changes of other nodes, too."""

    class OfAll(NodeName):
        name = "OfAll"
        scope = Scope.NODES

    with pytest.raises(ValueError, match="filters by all node objects"):
        Profile([*plugins.DEFAULT, OfAll().plugin()])
