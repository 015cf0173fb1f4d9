"""Why a pod waits, or why it is where it is: true of the cluster, and without disturbing it."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import HOST, PROFILE
from tests.unit.scheduler.test_topology_plugins import MUST, VERBS, ClusterGenerator, History, World

from grange.api.explanation import Explanation, SchedulingState
from grange.api.kinds.machine import DEDICATED_TAINT, STARTUP_TAINT
from grange.api.kinds.pod import Pod
from grange.base.clock import Clock
from grange.scheduler.cache import Cache
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import reference
from grange.scheduler.explain import changes
from grange.scheduler.explain.attempt_history import AttemptHistory, AttemptRecord, AttemptResult
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.explain.explainer import PodExplainer
from grange.scheduler.framework import CycleState
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.nominator import Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

# --- the evaluation agrees with decisions ----------------------------------------------------------


class Surveyed(World):
    """Explains every decision and holds the explanation to it."""

    def decide(self, pod: Pod) -> str | Diagnosis:
        found = super().decide(pod)
        info = PodInfo.of(pod)
        if isinstance(found, Diagnosis) and (found.pre_filter or not found.num_nodes):
            return found
        evaluation = Evaluation(PROFILE, info, self.snapshot)
        names = self.snapshot.table.names
        if isinstance(found, Diagnosis):
            assert evaluation.diagnosis == found
            assert not evaluation.feasible.any()
            for row in evaluation.nearest(5):
                assert evaluation.missing(row), "a near node lacks something, in words"
            near = evaluation.nearest(32)
            for blocking in changes.find_blocking_pods(evaluation, near, 3):
                self.snapshot.take_out(blocking.pod)
                after = Evaluation(PROFILE, info, self.snapshot)
                self.snapshot.put_back(blocking.pod.uid)
                assert after.feasible[self.snapshot.table.rows[blocking.node]]
            for clause in changes.remedies(evaluation):
                if clause.change is not None:
                    self.tried(clause.change(info), {names[row] for row in clause.rows})
        else:
            row = self.snapshot.table.rows[found]
            assert evaluation.feasible[row]
            total = np.sum([*evaluation.scores().values()], axis=0)
            best = max(
                (int(total[at]), int(self.snapshot.ties[at]))
                for at in range(len(names))
                if evaluation.feasible[at]
            )
            assert best == (int(total[row]), int(self.snapshot.ties[row]))
        assert super().decide(pod) == found, "explaining changes nothing"
        return found

    def tried(self, changed: PodInfo, promised: set[str]) -> None:
        """A changed pod goes where it was reported to fit, or somewhere it likes better."""
        check = reference.decide(PROFILE, CycleState(), changed, self.snapshot)
        assert isinstance(check, str), "what is shown as a change helps"
        fits = Evaluation(PROFILE, changed, self.snapshot).feasible
        assert all(fits[self.snapshot.table.rows[name]] for name in promised)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_an_explanation_agrees_with_the_decision(seed: int) -> None:
    """The same reasons and counts, the same best node; what is reported to help does help."""
    generator = ClusterGenerator(seed)
    shapes = [generator.shape() for _ in range(generator.rng.integer(2, 5))]
    history = History(Surveyed(), shapes)
    history.world.cache.set_namespace("other", {"team": "a"})
    for number in range(generator.rng.integer(3, 10)):
        history.run("node", generator.node(number))
    for _ in range(40):
        verb, number = generator.rng.choice(VERBS), generator.rng.integer(0, 99)
        history.run(verb, generator.node(number % 10) if verb == "node" else number)


# --- what is reported ------------------------------------------------------------------------------


class Scene:
    """A cache, a queue, and an explainer over them."""

    def __init__(self, clock: Clock) -> None:
        self.cache = Cache()
        self.queue = SchedulingQueue(PROFILE)
        self.snapshot = NodeInfoSnapshot()
        self.attempts = AttemptHistory()
        self.nominator = Nominator()
        self.explainer = PodExplainer(
            {"default-scheduler": PROFILE}.get,
            self.cache,
            self.queue,
            self.snapshot,
            self.attempts,
            clock=clock,
            nominator=self.nominator,
        )

    def nodes(self, *names: str, **options: Any) -> None:
        for name in names:
            self.cache.add_node(builders.node(name, **options))

    def put(self, name: str, node: str, **options: Any) -> Pod:
        pod = builders.pod(name, nodeName=node, **options)
        self.cache.add_pod(pod)
        return pod

    def waits(self, pod: Pod) -> Explanation:
        """The pod was tried in vain; why it waits."""
        info = PodInfo.of(pod)
        PROFILE.sign(info)
        self.queue.add(info, 0.0)
        queued = self.queue.pop(0.0)
        if queued is not None:
            self.cache.update_node_info_snapshot(self.snapshot)
            found = reference.decide(PROFILE, CycleState(), info, self.snapshot)
            assert isinstance(found, Diagnosis)
            self.attempts.rejected(info.uid, found, 0.0)
            self.queue.mark_unschedulable(queued, found.plugins, 0.0)
        answer = self.explainer.explain(pod)
        assert answer is not None
        return answer


@pytest.fixture
def scene(clock: Clock) -> Scene:
    return Scene(clock)


def shown(answer: Explanation) -> list[str]:
    """The changes that would help, as people read them."""
    return [f"{item.nodes}: {item.text}" for item in answer.changes]


async def test_too_much_cpu(scene: Scene) -> None:
    """How many nodes give which reason, and how much less would do."""
    scene.nodes("a", "b", "c")
    scene.put("one", "a", requests={"cpu": "1"})
    answer = scene.waits(builders.pod("big", requests={"cpu": "8"}))
    assert answer.state is SchedulingState.UNSCHEDULABLE
    assert (answer.nodes, answer.feasible) == (3, 0)
    assert [(item.reason, item.nodes) for item in answer.reasons] == [("Insufficient cpu", 3)]
    assert shown(answer) == ["2: if cpu ≤ 4"]
    assert answer.changes[0].examples == ("b", "c")
    assert [item.name for item in answer.nearest] == ["b", "c", "a"]
    assert answer.nearest[0].missing == ("cpu: wants 8, the whole node has 4",)
    assert answer.until, "it is tried again at some time in any case"
    assert answer.attempts[0].message == "0/3 nodes are available: 3 Insufficient cpu."
    assert answer.attempts[0].plugins == ("NodeResourcesFit",)


async def test_a_little_less_or_one_pod_less(scene: Scene) -> None:
    """A pod whose end would do is named with its node; the least important one."""
    scene.nodes("a", "b")
    scene.put("big", "a", requests={"cpu": "3"}, priority=5)
    scene.put("small", "a", requests={"cpu": "500m"})
    scene.put("other", "b", requests={"cpu": "3500m"}, priority=7)
    answer = scene.waits(builders.pod("new", requests={"cpu": "1"}))
    assert shown(answer) == [
        "2: if cpu ≤ 0.5",
        "1: when pod default/small on a ends",
        "1: when pod default/other on b ends",
    ]


async def test_several_amounts_together(scene: Scene) -> None:
    scene.nodes("a", capacity={"cpu": "4", "memory": "8Gi", "pods": 10, "example.com/gpu": 1})
    requests = {"cpu": "5", "memory": "10Gi", "example.com/gpu": 2}
    answer = scene.waits(builders.pod("big", requests=requests))
    assert shown(answer) == ["1: if cpu ≤ 4 and memory ≤ 8Gi and example.com/gpu ≤ 1"]
    assert len(answer.nearest[0].missing) == 3


async def test_no_more_pods(scene: Scene) -> None:
    scene.nodes("a", capacity={"cpu": "4", "memory": "8Gi", "pods": 1})
    scene.put("one", "a")
    answer = scene.waits(builders.pod("two"))
    assert answer.nearest[0].missing == ("no room for more than 1 pod",)
    assert shown(answer) == ["1: when pod default/one on a ends"]


async def test_taints_are_named(scene: Scene) -> None:
    """By taint; what a node reports about its own health is not to be tolerated but waited for."""
    db = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    ill = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    scene.nodes("a", "b", taints=[db])
    scene.nodes("c", taints=[ill])
    scene.nodes("d", taints=[db, ill])
    scene.nodes("e", unschedulable=True)
    answer = scene.waits(builders.pod("new"))
    assert shown(answer) == [
        "1: when they are uncordoned",
        "2: if it tolerates taint dedicated=db:NoSchedule",
        "1: when they are Ready again",
    ]
    assert {item.name: item.missing for item in answer.nearest}["d"] == (
        "taint dedicated=db:NoSchedule",
        "taint node.kubernetes.io/not-ready:NoExecute",
    )


async def test_machines_of_other_pods_are_no_remedy(scene: Scene) -> None:
    """Only the node controller places pods on dedicated machines, and it takes the startup taint off."""
    scene.nodes("a", taints=[{"key": DEDICATED_TAINT, "effect": "NoSchedule"}])
    scene.nodes("b", taints=[{"key": STARTUP_TAINT, "effect": "NoSchedule"}])
    answer = scene.waits(builders.pod("new"))
    assert shown(answer) == ["1: when they are initialized"]


async def test_missing_labels_are_named(scene: Scene) -> None:
    scene.nodes("a", labels={"disk": "hdd"})
    scene.nodes("b", labels={"gpu": "yes"})
    answer = scene.waits(builders.pod("new", nodeSelector={"disk": "ssd", "gpu": "yes"}))
    assert shown(answer)[0] == "1: if its nodeSelector does without disk=ssd"
    assert {item.name: item.missing for item in answer.nearest} == {
        "b": ("no label disk=ssd",),
        "a": ("disk is hdd, not ssd", "no label gpu=yes"),
    }


async def test_required_terms(scene: Scene) -> None:
    scene.nodes("a")
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}]}
    must = {"nodeAffinity": {MUST: {"nodeSelectorTerms": [term]}}}
    answer = scene.waits(builders.pod("new", affinity=must))
    assert shown(answer) == ["1: if it drops its required node affinity"]
    assert answer.nearest[0].missing == ("not zone in (x, y)",)


async def test_host_ports(scene: Scene) -> None:
    scene.nodes("a")
    scene.put("web", "a", host_ports=[80])
    answer = scene.waits(builders.pod("new", host_ports=[80]))
    assert answer.nearest[0].missing == ("host port 80/TCP is held by pod default/web",)
    assert shown(answer) == [
        "1: when pod default/web on a ends",
        "1: if it does without host port 80/TCP",
    ]


def apart(**labels: str) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {MUST: [term]}}


async def test_company_that_is_refused(scene: Scene) -> None:
    """On either side; its end would help where it is the only one."""
    scene.nodes("a", "b")
    for name, node in (("one", "a"), ("two", "b"), ("three", "b")):
        scene.put(name, node, labels={"app": "db"})
    answer = scene.waits(builders.pod("new", labels={"app": "db"}, affinity=apart(app="db")))
    assert shown(answer) == [
        "1: when pod default/one on a ends",
        f"2: if it gives up refusing pods with app=db in its {HOST}",
    ]
    assert answer.nearest[0].missing == (
        f"wants no pods with app=db in its {HOST}: default/one is there",
    )


async def test_refused_by_pods_that_are_there(scene: Scene) -> None:
    scene.nodes("a")
    scene.put("lonely", "a", affinity=apart(app="web"))
    answer = scene.waits(builders.pod("new", labels={"app": "web"}))
    assert answer.nearest[0].missing == (f"default/lonely, there, wants no such pod in its {HOST}",)
    assert shown(answer) == ["1: when pod default/lonely on a ends"]


async def test_company_that_is_missing(scene: Scene) -> None:
    scene.nodes("a", zone="x")
    key = "topology.kubernetes.io/zone"
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "db"}}}
    answer = scene.waits(builders.pod("new", affinity={"podAffinity": {MUST: [term]}}))
    assert shown(answer) == [f"1: when one of the pods with app=db runs in their {key}"]


async def test_skew_that_would_do_is_named(scene: Scene) -> None:
    """Which skew would do; and the emptier domain shows why it is not taken."""
    key = "topology.kubernetes.io/zone"
    scene.nodes("a", zone="x")
    scene.nodes("b", zone="y", taints=[{"key": "k", "effect": "NoSchedule"}])
    for number in range(2):
        scene.put(f"p{number}", "a", labels={"app": "web"})
    spread = {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    pod = builders.pod("new", labels={"app": "web"}, topologySpreadConstraints=[spread])
    answer = scene.waits(pod)
    assert shown(answer) == [
        "1: if it tolerates taint k:NoSchedule",
        f"1: if maxSkew over {key} ≥ 3",
    ]
    assert {item.name: item.missing for item in answer.nearest}["a"] == (
        f"{key} x has 2 such pods, the emptiest domain 0: maxSkew is 1",
    )


def even(**policies: str) -> dict[str, Any]:
    spread = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **policies,
    }
    return {"labels": {"app": "web"}, "topologySpreadConstraints": [spread]}


async def test_a_selector_less_may_be_a_domain_more(scene: Scene) -> None:
    """Without the selector the empty zone counts, and the node without the label is too full."""
    scene.nodes("a", zone="z0", labels={"disk": "ssd"})
    scene.nodes("b", zone="z1", taints=[{"key": "k", "effect": "NoSchedule"}])
    scene.nodes("c", zone="z2")
    for number in range(3):
        scene.put(f"a{number}", "a", labels={"app": "web"}, requests={"cpu": "1300m"})
        scene.put(f"c{number}", "c", labels={"app": "web"})
    pod = builders.pod("new", nodeSelector={"disk": "ssd"}, requests={"cpu": "1"}, **even())
    answer = scene.waits(pod)
    assert answer.changes
    assert "1: if its nodeSelector does without disk=ssd" not in shown(answer)
    assert "1: if cpu ≤ 0.1" in shown(answer)


async def test_a_toleration_more_may_be_a_domain_more(scene: Scene) -> None:
    """A tainted node's zone counts, with all its pods, for those that tolerate the taint."""
    scene.nodes("a", zone="z0", taints=[{"key": "k", "effect": "NoSchedule"}])
    scene.nodes("b", zone="z1")
    for number in range(3):
        scene.put(f"a{number}", "a", labels={"app": "web"})
    scene.put("full", "b", requests={"cpu": "4"})
    pod = builders.pod("new", requests={"cpu": "1"}, **even(nodeTaintsPolicy="Honor"))
    answer = scene.waits(pod)
    assert shown(answer) == ["1: when pod default/full on b ends"]


async def test_two_things_in_the_way_on_every_node(scene: Scene) -> None:
    """Then a change names both."""
    scene.nodes("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    answer = scene.waits(builders.pod("new", requests={"cpu": "9"}))
    assert shown(answer) == ["1: if it tolerates taint k:NoSchedule and cpu ≤ 4"]
    assert len(answer.nearest[0].missing) == 2


async def test_scheduling_gates_are_named(scene: Scene) -> None:
    pod = builders.pod("new", schedulingGates=[{"name": "a/quota"}])
    info = PodInfo.of(pod)
    PROFILE.sign(info)
    scene.queue.add(info, 0.0)
    answer = scene.explainer.explain(pod)
    assert answer is not None
    assert answer.state is SchedulingState.GATED
    assert "a/quota" in answer.summary
    assert answer.hint


async def test_a_claim_that_no_node_can_meet(scene: Scene) -> None:
    """It waits rather than never start on some node; other volumes are made anywhere."""
    scene.nodes("a", "b")
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}
    answer = scene.waits(builders.pod("new", volumes=[data]))
    ((reason, nodes),) = [(item.reason, item.nodes) for item in answer.reasons]
    assert reason == 'persistentvolumeclaim "mine" not found'
    assert "emptyDir" in answer.hint
    assert (nodes, answer.feasible, answer.changes) == (2, 0, ())
    assert answer.attempts[0].plugins == ("VolumeBinding",)
    scene.cache.update_node_info_snapshot(scene.snapshot)
    scratch = builders.pod("scratch", volumes=[{"name": "data", "emptyDir": {}}])
    found = reference.decide(PROFILE, CycleState(), PodInfo.of(scratch), scene.snapshot)
    assert found == "a"


async def test_room_that_is_promised_to_others(scene: Scene) -> None:
    """A node with enough room, but not next to the pod that others make way for."""
    scene.nodes("a")
    first = PodInfo.of(builders.pod("first", requests={"cpu": "3"}, priority=10))
    scene.nominator.put(first, "a")
    pod = builders.pod("second", requests={"cpu": "2"})
    info = PodInfo.of(pod)
    PROFILE.sign(info)
    scene.queue.add(info, 0.0)
    answer = scene.explainer.explain(pod)
    assert answer is not None
    assert answer.feasible == 0
    assert [(item.reason, item.nodes) for item in answer.reasons] == [("Insufficient cpu", 1)]
    assert answer.nearest[0].missing == ("room is kept for default/first",)
    assert answer.choice is None
    urgent = PodInfo.of(builders.pod("urgent", requests={"cpu": "2"}, priority=20))
    PROFILE.sign(urgent)
    scene.queue.add(urgent, 0.0)
    answer = scene.explainer.explain(urgent.pod)
    assert answer is not None
    assert answer.feasible == 1, "it comes before the one that is nominated"
    scene.queue.add(first, 0.0)
    answer = scene.explainer.explain(first.pod)
    assert answer is not None
    assert "room is being made for it on a" in answer.summary
    assert answer.node == "a"


async def test_no_nodes(scene: Scene) -> None:
    answer = scene.waits(builders.pod("new"))
    assert "there are no nodes" in answer.summary
    assert answer.hint


async def test_a_node_that_would_do_now(scene: Scene) -> None:
    """While it waits for its turn it may be shown where it would go."""
    scene.nodes("a", "b")
    scene.put("one", "a", requests={"cpu": "1"})
    pod = builders.pod("new", requests={"cpu": "1"})
    info = PodInfo.of(pod)
    PROFILE.sign(info)
    scene.queue.add(info, 0.0)
    answer = scene.explainer.explain(pod)
    assert answer is not None
    assert answer.state is SchedulingState.ACTIVE
    assert answer.feasible == 2
    assert answer.choice is not None
    assert (answer.choice.node, answer.choice.runner_up) == ("b", "a")
    assert answer.choice.score == sum(answer.choice.parts.values())


async def test_why_it_is_where_it_is(scene: Scene) -> None:
    """Its node against the best of the others, without counting itself; nothing is disturbed."""
    scene.nodes("a", "b", "c")
    scene.put("one", "b", requests={"cpu": "1"})
    pod = scene.put("mine", "a", requests={"cpu": "2"})
    scene.attempts.scheduled(pod.metadata.uid, "a", 574, 0.0)
    before = scene.cache.snapshot().nodes
    answer = scene.explainer.explain(pod)
    assert answer is not None
    assert (answer.state, answer.node, answer.summary) == (SchedulingState.PLACED, "a", "is on a")
    assert answer.choice is not None
    assert answer.choice.candidates == 3
    assert answer.choice.runner_up == "c"
    assert answer.choice.score == answer.choice.runner_up_score, "an empty node either way"
    assert [(item.node, item.score) for item in answer.attempts] == [("a", 574)]
    scene.cache.update_node_info_snapshot(scene.snapshot)
    assert scene.snapshot.node_info_map["a"].usage.cpu_milli == 2000
    assert {name: info.usage for name, info in before.items()} == {
        name: info.usage for name, info in scene.cache.snapshot().nodes.items()
    }


async def test_a_node_that_would_not_do_any_more(scene: Scene) -> None:
    scene.nodes("a")
    pod = scene.put("mine", "a")
    scene.cache.update_node(None, builders.node("a", taints=[{"key": "k", "effect": "NoSchedule"}]))
    answer = scene.explainer.explain(pod)
    assert answer is not None
    assert answer.choice is None
    assert answer.nearest[0].missing == ("taint k:NoSchedule",)


async def test_pods_of_others_and_pods_that_are_done(scene: Scene) -> None:
    assert scene.explainer.explain(builders.pod("new", schedulerName="other")) is None
    unseen = scene.explainer.explain(builders.pod("new"))
    assert unseen is not None
    assert unseen.state is SchedulingState.UNSEEN
    pod = builders.pod("done", nodeName="a")
    ended = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))
    found = scene.explainer.explain(ended)
    assert found is not None
    assert (found.state, found.summary) == (
        SchedulingState.FINISHED,
        "ran on a and failed; it needs no node any more",
    )
    pod = builders.pod("never")
    ended = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))
    found = scene.explainer.explain(ended)
    assert found is not None
    assert (found.summary, found.node) == ("had no node and failed; it needs no node any more", "")


# --- bounds ------------------------------------------------------------------------------------


def diagnosis(number: int = 0, reasons: int = 1) -> Diagnosis:
    counts = tuple((f"reason {number} {at:04}", at + 1) for at in range(reasons))
    return Diagnosis(reasons, counts, frozenset({"P"}))


def test_attempts_that_end_alike_are_one_entry() -> None:
    attempts = AttemptHistory()
    for at in range(1000):
        attempts.rejected("u", diagnosis(reasons=100), float(at))
    (entry,) = attempts.of("u")
    assert (entry.times, entry.first, entry.last) == (1000, 0.0, 999.0)
    assert entry.diagnosis is not None
    assert len(entry.diagnosis.counts) == 16
    assert ("reason 0 0099", 100) in entry.diagnosis.counts, "the most frequent are kept"


def test_history_is_bounded_by_pod_and_in_all() -> None:
    attempts = AttemptHistory(each=3, waiting=10, placed=10)
    for uid in range(50):
        for number in range(20):
            attempts.rejected(f"w{uid}", diagnosis(number), float(number))
        attempts.scheduled(f"p{uid}", "n", 1, 0.0)
    assert len(attempts) == 20
    assert len(attempts.of("w49")) == 3
    assert attempts.of("w0") == []
    assert attempts.of("p49") == [AttemptRecord(AttemptResult.SCHEDULED, 0.0, 0.0, 1, "n", 1)]


def test_bindings_that_fail_do_not_grow_the_history() -> None:
    """Nothing is recorded between two choices of a node where the binding had no answer."""
    attempts = AttemptHistory(each=3)
    for at in range(20):
        attempts.scheduled("u", "n", 1, float(at))
    assert [entry.last for entry in attempts.of("u")] == [16.0, 17.0, 18.0, 19.0]


def test_a_placed_pod_keeps_what_was_before() -> None:
    attempts = AttemptHistory()
    attempts.rejected("u", diagnosis(1), 1.0)
    attempts.scheduled("u", "a", 5, 2.0)
    assert [entry.result for entry in attempts.of("u")] == [
        AttemptResult.UNSCHEDULABLE,
        AttemptResult.SCHEDULED,
    ]
    attempts.rejected("u", diagnosis(2), 3.0)  # its binding was refused, and nothing fits now
    attempts.scheduled("u", "b", 5, 4.0)
    assert [entry.node for entry in attempts.of("u")] == ["", "a", "", "b"]
    attempts.forget("u")
    assert attempts.of("u") == []


async def test_work_is_bounded_however_many_pods_are_in_the_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endings are sought on few nodes, among few pods."""
    for number in range(40):
        scene.nodes(f"n{number}", capacity={"cpu": "100", "memory": "32Gi", "pods": 500})
        for at in range(100):
            scene.put(f"p{number}-{at}", f"n{number}", labels={"app": "db"})
    trials = 0
    clone = NodeInfo.clone

    def counted(entry: NodeInfo) -> NodeInfo:
        nonlocal trials
        trials += 1
        return clone(entry)

    scene.cache.update_node_info_snapshot(scene.snapshot)
    monkeypatch.setattr(NodeInfo, "clone", counted)
    answer = scene.waits(builders.pod("new", affinity=apart(app="db")))
    assert shown(answer) == [f"40: if it gives up refusing pods with app=db in its {HOST}"]
    assert 0 < trials <= 256
