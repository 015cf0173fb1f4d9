"""What a snapshot made of given nodes and pods holds, and that trials leave no trace in it."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from tests.support.scheduler_cluster import HOST, PROFILE
from tests.support.snapshot_views import used_claims, with_affinity, with_required_anti_affinity
from tests.unit.scheduler.test_topology_plugins import MUST

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.base.log import Logger
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Cycle
from grange.scheduler.diagnosis import Diagnosis, Narrowed
from grange.scheduler.engine import reference
from grange.scheduler.errors import CacheError
from grange.scheduler.event_handlers import EventHandlers
from grange.scheduler.framework import CycleState
from grange.scheduler.podindex import Query
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

TERM = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
NEAR = {"podAffinity": {MUST: [TERM]}}
APART = {"podAntiAffinity": {MUST: [TERM]}}


def mounting(name: str) -> list[dict[str, Any]]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def built(log: Logger, nodes: Iterable[Node], pods: Iterable[Pod]) -> NodeInfoSnapshot:
    """As the informers would bring them."""
    cache, snapshot = Cache(), NodeInfoSnapshot()
    queue = SchedulingQueue(PROFILE)
    handlers = EventHandlers(
        Cycle(PROFILE, cache), queue, frozenset({"default-scheduler"}), now=lambda: 0.0, log=log
    )
    for node in nodes:
        handlers.node_added(node)
    for pod in pods:
        handlers.pod_added(pod)
    cache.update_node_info_snapshot(snapshot)
    return snapshot


def test_check_87_claims_of_pods_without_a_node_are_not_in_use(log: Logger) -> None:
    pods = [
        builders.pod("placed", nodeName="a", volumes=mounting("one")),
        builders.pod("waiting", volumes=mounting("two")),
        builders.pod("unknown", nodeName="nowhere", volumes=mounting("three")),
    ]
    snapshot = built(log, [builders.node("a")], pods)
    assert used_claims(snapshot) == {"default/one"}


def test_check_88_nodes_have_their_pods_and_affinity_lists(log: Logger) -> None:
    pods = [
        builders.pod("plain", nodeName="a"),
        builders.pod("near", nodeName="b", affinity=NEAR),
        builders.pod("apart", nodeName="c", affinity=APART),
        builders.pod("both", nodeName="c", affinity={**NEAR, **APART}),
        builders.pod("waiting", affinity=APART),
    ]
    snapshot = built(log, [builders.node(name) for name in "abcd"], pods)
    held = {
        info.name: [pod.pod.metadata.name for pod in info.pods] for info in snapshot.node_info_list
    }
    assert held == {"a": ["plain"], "b": ["near"], "c": ["apart", "both"], "d": []}
    assert [info.name for info in with_affinity(snapshot)] == ["b", "c"]
    assert [info.name for info in with_required_anti_affinity(snapshot)] == ["c"]


# --- a part of the nodes -----------------------------------------------------------------------


def choose(snapshot: NodeInfoSnapshot, *names: str, **options: Any) -> str | Diagnosis:
    """A decision among these nodes only; among all where none are named."""
    pod = PodInfo.of(builders.pod("new", **options))
    narrowed = Narrowed(frozenset(names), ("Test",)) if names else Narrowed()
    return reference.choose(PROFILE, CycleState(), pod, snapshot, narrowed)


def test_check_90_candidates_can_be_narrowed_down(log: Logger) -> None:
    """The snapshot as a whole stays what it is; names of others are no candidates."""
    big = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    nodes = [builders.node("a", capacity=big), builders.node("b"), builders.node("c")]
    snapshot = built(log, nodes, [])
    before = [*snapshot.node_info_list]
    assert choose(snapshot, requests={"cpu": "1"}) == "a"
    assert choose(snapshot, "b", "c", requests={"cpu": "1"}) == "b"
    assert choose(snapshot, "c", "elsewhere", requests={"cpu": "1"}) == "c"
    refused = choose(snapshot, "elsewhere")
    assert isinstance(refused, Diagnosis)
    assert dict(refused.counts) == {"node(s) didn't satisfy plugin(s) [Test]": 3}
    assert snapshot.node_info_list == before
    assert snapshot.get("a") is before[0]
    assert snapshot.num_nodes == 3


def test_check_90_a_trial_is_seen_through_the_narrowed_view(log: Logger) -> None:
    snapshot = built(log, [builders.node("a"), builders.node("b"), builders.node("c")], [])
    trial = PodInfo.of(builders.pod("trial", nodeName="b", requests={"cpu": "2"}))
    snapshot.assume_pod(trial)
    assert choose(snapshot, "b", "c", requests={"cpu": "1"}) == "c"
    snapshot.forget_pod(trial)
    assert choose(snapshot, "b", "c", requests={"cpu": "1"}) == "b"


# --- back to what it was -----------------------------------------------------------------------


def state(snapshot: NodeInfoSnapshot) -> list[object]:
    """Everything that a decision looks at."""
    table = snapshot.table
    return [
        {
            name: (info.usage, sorted(pod.uid for pod in info.pods))
            for name, info in snapshot.node_info_map.items()
        },
        [info.name for info in snapshot.node_info_list],
        [info.name for info in with_affinity(snapshot)],
        [info.name for info in with_required_anti_affinity(snapshot)],
        used_claims(snapshot),
        table.amounts("cpu", table.all)[1].tolist(),
        table.amounts("pods", table.all)[1].tolist(),
    ]


def test_check_91_trials_restore_all_structures(log: Logger) -> None:
    """Pods taken out and pods assumed, whichever is undone first; counts by selector too."""
    placed = [
        builders.pod("near", nodeName="a", affinity=NEAR, labels={"app": "db"}),
        builders.pod(
            "apart", nodeName="b", affinity=APART, volumes=mounting("x"), requests={"cpu": "1"}
        ),
    ]
    snapshot = built(log, [builders.node("a"), builders.node("b")], placed)
    selector = PodInfo.of(placed[0]).terms.affinity[0].selector
    counter = snapshot.index.counter(Query((selector,)))
    before, counts = state(snapshot), counter.rows(snapshot.table.size).copy()
    generation = snapshot.generation
    for pod in placed:
        snapshot.take_out(PodInfo.of(pod))
    trial = PodInfo.of(
        builders.pod(
            "trial", nodeName="a", affinity=APART, volumes=mounting("y"), labels={"app": "db"}
        )
    )
    snapshot.assume_pod(trial)
    assert state(snapshot) != before
    assert used_claims(snapshot) == {"default/y"}
    snapshot.undo_trials()
    assert state(snapshot) == before
    assert np.array_equal(counter.rows(snapshot.table.size), counts)
    assert snapshot.generation == generation


def test_check_91_no_trial_within_the_same_trial(log: Logger) -> None:
    pod = builders.pod("p", nodeName="a")
    snapshot = built(log, [builders.node("a")], [pod])
    info = PodInfo.of(pod)
    snapshot.take_out(info)
    with pytest.raises(CacheError):
        snapshot.take_out(info)
    snapshot.put_back(info.uid)
    with pytest.raises(CacheError):
        snapshot.put_back(info.uid)
    snapshot.take_out(info)  # allowed again
    snapshot.undo_trials()
    assert snapshot.node_info_map["a"].usage.pods == 1
