"""What preemption and nominations keep by row: never stale, and how little is looked at again.

The naive evaluator and the reference decide what is right; see ``preemption_cluster``.
"""

from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings, strategies as st
from tests.support.preemption_cluster import World, leaving, pod
from tests.support.scheduler_cluster import HOST, PROFILE, REQUIRED

from grange.api.selectors import Labels
from grange.scheduler import plugins
from grange.scheduler.changelog import ChangeLog
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.disruption_budgets import DisruptionBudget
from grange.scheduler.engine import Engine, reference
from grange.scheduler.framework import (
    PASS,
    Code,
    CycleState,
    Plugin,
    PreFilterResult,
    Profile,
    Status,
)
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evaluator import was_preempted
from grange.scheduler.preemption.victim_selection import (
    CLEAN,
    NO_RANK,
    RANK,
    UNHELPFUL,
    UNKNOWN,
    VIOLATING,
    CandidateSettings,
    Rank,
    Victims,
    dry_run,
    first_candidates,
    least,
)
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

EARLY, LATE = "2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"
CAPACITY = {"memory": "32Gi", "pods": "110"}


class Kept(World):
    """The same with an engine, and both held to what is right."""

    def __init__(self, settings: CandidateSettings | None = None, offset: int = 0) -> None:
        super().__init__(settings, offset)
        self.engine = Engine(PROFILE, self.snapshot)

    def decide(self, info: PodInfo) -> str | Diagnosis:
        """As the reference decides."""
        self.cache.update_node_info_snapshot(self.snapshot)
        self.cache.update_node_info_snapshot(self.truth)
        nominated = self.nominator.nominations_for(info)
        expected = reference.decide(PROFILE, CycleState(), info, self.truth, None, nominated)
        found = self.engine.decide(info, CycleState(), nominated)
        assert found == expected
        return found

    def preempt(self, info: PodInfo) -> tuple[str, list[PodInfo]] | None:
        """Room for a pod that has none, as the naive evaluator finds it."""
        expected = None if self.waits(info) else self.expected(info)
        found = self.ask(info)
        assert (found.nominated or None) == (expected[0] if expected else None)
        if expected is None:
            return None
        # Who is on the way out already is waited for, and not deleted once more.
        going = {
            item.pod.metadata.name
            for item in self.snapshot.node_info_map[expected[0]].pods
            if item.pod.metadata.deletion_timestamp
        }
        names = [victim.pod.metadata.name for victim in found.victims]
        assert names == [name for name in expected[1] if name not in going]
        return expected[0], [*found.victims]

    def waits(self, info: PodInfo) -> bool:
        """Whether a victim makes room for it already, on a node that may take it."""
        self.cache.update_node_info_snapshot(self.truth)
        name = self.nominator.node_of(info.uid)
        node = self.truth.node_info_map.get(name)
        return (
            node is not None
            and any(
                item.pod.spec.priority < info.pod.spec.priority
                and item.pod.metadata.deletion_timestamp
                and was_preempted(item.pod)
                for item in node.pods
            )
            and not self.passes(info, name)[1]
        )


# Two classes ask, of few loads, and nodes change seldom: so what is kept is used.
ASKING = [("1", 5, "20Gi"), ("3", 9, "")]
SITTING = st.tuples(
    st.sampled_from([("500m", ""), ("1", ""), ("2", ""), ("1", "16Gi")]),
    st.integers(0, 6),
    st.sampled_from(["", "web", "db"]),
    st.sampled_from(["", EARLY, LATE]),
    st.sampled_from([0, 0, 0, 0, 80]),
)
VERBS = (
    *("put", "put", "place", "drop", "delete", "allow", "change", "leave") * 3,
    *("preempt",) * 20,
    *("shy", "select", "unbudget", "cordon", "grow", "join", "part") * 2,
)


class History:
    """A world to which things happen; each verb is a method."""

    def __init__(self, settings: CandidateSettings, offset: int, first: list[Any]) -> None:
        self.world = Kept(settings, offset)
        self.world.nodes(*(f"n{at}" for at in range(5)), cpu="3")
        self.joined = 5
        self.there: dict[str, PodInfo] = {}
        self.waiting: dict[str, PodInfo] = {}
        self.shying: dict[str, PodInfo] = {}
        for number, shape in enumerate(first):
            self.put(f"first{number}", number, shape)

    def put(self, name: str, pick: int, shape: Any) -> None:
        """A pod is bound by a user."""
        (cpu, memory), priority, app, since, port = shape
        more = {"labels": {"app": app} if app else {}, "host_ports": [port] if port else []}
        info = pod(name, priority, cpu, memory=memory, since=since, **more)
        self.there[name] = info.on(f"n{pick % self.joined}")
        self.world.cache.add_pod(self.there[name])

    def preempt(self, name: str, pick: int, _: Any) -> None:
        """A pod without a node looks for room; perhaps one that was promised some."""
        cpu, priority, memory = ASKING[pick % 2]
        info = pod(name, priority, cpu, memory=memory)
        if self.waiting and pick % 3 == 0:
            info = self.waiting[self.some(self.waiting, pick)]
        if not isinstance(self.world.decide(info), Diagnosis):
            return
        room = self.world.preempt(info)
        if room is not None:
            self.world.nominator.put(info, room[0])
            self.waiting[info.pod.metadata.name] = info
            for victim in room[1][pick % 2 :]:
                self.world.cache.remove_pod(self.there.pop(victim.pod.metadata.name).pod)

    def place(self, _: str, pick: int, __: Any) -> None:
        """A pod that was promised room is tried again."""
        if self.waiting:
            name = self.some(self.waiting, pick)
            found = self.world.decide(self.waiting[name])
            if isinstance(found, str):
                self.there[name] = self.waiting.pop(name).on(found)
                self.world.nominator.remove(self.there[name].uid)
                self.world.cache.add_pod(self.there[name])

    def shy(self, name: str, pick: int, _: Any) -> None:
        """A pod that refuses all company is promised room."""
        anybody = {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}
        near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": anybody}
        far = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
        info = pod(name, ASKING[pick % 2][1], affinity={"podAntiAffinity": far})
        # It never comes: with it there, rules would decide and nothing could be kept.
        self.shying[name] = info
        self.world.nominator.put(info, f"n{pick % self.joined}")

    def drop(self, _: str, pick: int, __: Any) -> None:
        """A promise is over."""
        names = self.shying if self.shying and pick % 2 else self.waiting
        if names:
            self.world.nominator.remove(names.pop(self.some(names, pick)).uid)

    def delete(self, _: str, pick: int, __: Any) -> None:
        """A pod is gone."""
        if self.there:
            self.world.cache.remove_pod(self.there.pop(self.some(self.there, pick)).pod)

    def change(self, _: str, pick: int, __: Any) -> None:
        """A pod has other labels and another start, and needs the same."""
        if self.there:
            name = self.some(self.there, pick)
            held = self.there[name].pod
            labels = {"app": ("web", "db")[pick % 2]}
            meta = msgspec.structs.replace(held.metadata, labels=labels)
            status = msgspec.structs.replace(held.status, start_time=(EARLY, LATE)[pick % 2])
            held = msgspec.structs.replace(held, metadata=meta, status=status)
            self.update(name, self.there[name].seen_as(held))

    def leave(self, _: str, pick: int, __: Any) -> None:
        """A pod is on its way out."""
        if self.there:
            name = self.some(self.there, pick)
            self.update(name, leaving(self.there[name], preempted=bool(pick % 2)))

    def allow(self, _: str, pick: int, __: Any) -> None:
        """A budget allows something else."""
        self.budget(pick, ("web", "db")[pick % 2])

    def select(self, _: str, pick: int, __: Any) -> None:
        """A budget is about other pods."""
        self.budget(pick, ("db", "web")[pick % 2])

    def unbudget(self, _: str, pick: int, __: Any) -> None:
        """A budget is gone."""
        self.world.budgets.remove("default", ("web", "db")[pick % 2])

    def cordon(self, _: str, pick: int, __: Any) -> None:
        """A node takes no more pods."""
        self.node(pick, unschedulable=True)

    def grow(self, _: str, pick: int, __: Any) -> None:
        """A node offers something else."""
        self.node(pick, unschedulable=False)

    def join(self, _: str, __: int, ___: Any) -> None:
        """A node comes."""
        self.world.nodes(f"n{self.joined}", cpu="3")
        self.joined += 1

    def part(self, _: str, pick: int, __: Any) -> None:
        """A node goes, and its pods stay behind."""
        name = f"n{pick % self.joined}"
        if name in self.world.cache.node_tree:
            self.world.cache.remove_node(builders.node(name))

    @staticmethod
    def some(names: dict[str, PodInfo], pick: int) -> str:
        return [*names][pick % len(names)]

    def update(self, name: str, info: PodInfo) -> None:
        self.world.cache.update_pod(self.there[name].pod, info)
        self.there[name] = info

    def budget(self, pick: int, app: str) -> None:
        counted = frozenset([self.some(self.there, pick)] if self.there and pick % 5 == 0 else [])
        selector = Labels.parse(f"app={app}")
        self.world.budgets.put(
            DisruptionBudget("default", ("web", "db")[pick % 2], selector, pick % 3, counted)
        )

    def node(self, pick: int, *, unschedulable: bool) -> None:
        capacity = {**CAPACITY, "cpu": str(2 + pick % 3)}
        name = f"n{pick % self.joined}"
        node = builders.node(name, capacity=capacity, unschedulable=unschedulable)
        self.world.cache.update_node(None, node)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(SITTING, min_size=10, max_size=18),
    st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 40), SITTING), max_size=60),
    st.integers(0, 7),
    st.sampled_from([CandidateSettings(), CandidateSettings(50, 1), CandidateSettings(0, 1)]),
)
def test_check_109_nothing_that_is_kept_is_stale(
    first: list[Any], steps: list[Any], offset: int, enough: CandidateSettings
) -> None:
    """Whatever happens between two pods, they get the answers and nodes that the reference would."""
    history = History(enough, offset, first)
    for number, (verb, pick, shape) in enumerate(steps):
        getattr(history, verb)(f"p{number}", pick, shape)


# --- one by one ----------------------------------------------------------------------------------


def test_a_budget_that_allows_less_makes_another_node_the_best() -> None:
    world = Kept()
    world.nodes("a", "b")
    world.put(pod("one", 1, "4", labels={"app": "web"}), "a").put(pod("two", 1, "4"), "b")
    world.budgets.put(DisruptionBudget("default", "web", Labels.parse("app=web"), 1))
    assert world.victims(pod("p", 9)) == ("a", ["one"])
    world.budgets.put(DisruptionBudget("default", "web", Labels.parse("app=web"), 0))
    assert world.victims(pod("q", 9)) == ("b", ["two"])
    world.budgets.put(DisruptionBudget("default", "web", Labels.parse("app=web"), 1))
    assert world.victims(pod("r", 9)) == ("a", ["one"])


def test_an_answer_for_a_pods_own_node_is_for_itself_alone() -> None:
    """Its promise does not count against it, and does against others of its class."""
    world = Kept()
    world.nodes("a")
    world.put(pod("low", 1, "4"), "a")
    mine = pod("mine", 9, "3")
    world.nominator.put(mine, "a")
    for _ in range(2):
        assert isinstance(world.decide(mine), Diagnosis)
        assert world.victims(mine) == ("a", ["low"])
        assert isinstance(world.decide(pod("other", 9, "3")), Diagnosis)
        assert world.victims(pod("other", 9, "3")) == (None, [])
    world.cache.remove_pod(pod("low", 1, "4").on("a").pod)
    assert isinstance(world.decide(pod("other", 9, "3")), Diagnosis)
    assert world.decide(mine) == "a"


def test_existing_anti_affinity_is_asked_of_each_pod() -> None:
    """Also when another term joins: then rules decide where loads did alone."""
    world = Kept()
    world.nodes("a", "b")
    world.put(pod("low", 1, "4"), "a").put(refusing("db", 20, "100m"), "b")
    for name in ("one", "two", "three"):
        assert world.victims(pod(name, 9, labels={"app": "web"})) == ("a", ["low"])
    world.put(refusing("web", 20, "0"), "a")
    for name in ("four", "five"):
        assert world.victims(pod(name, 9, labels={"app": "web"})) == (None, [])
    assert world.victims(pod("six", 9, labels={"app": "other"})) == ("a", ["low"])


def refusing(app: str, priority: int, cpu: str) -> PodInfo:
    """A pod that refuses the company of an application."""
    near = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    affinity = {"podAntiAffinity": {REQUIRED: [near]}}
    return pod(f"against-{app}", priority, cpu, affinity=affinity)


def test_whom_a_nominated_pod_refuses_is_asked_of_each_pod() -> None:
    """Labels decide that, and pods of one class may have any."""
    world = Kept()
    world.nodes("a")
    world.put(pod("low", 1, "4"), "a")
    near = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "p"}}}
    shy = pod("shy", 9, affinity={"podAntiAffinity": {REQUIRED: [near]}})
    world.nominator.put(shy, "a")
    for _ in range(2):
        assert world.victims(pod("p", 9, labels={"app": "p"})) == (None, [])
        assert world.victims(pod("q", 9, labels={"app": "q"})) == ("a", ["low"])


# --- the parts -----------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from("0bh"), max_size=300),
    st.integers(0, 150),
    st.integers(0, 300),
    st.integers(0, 300),
    st.randoms(use_true_random=False),
)
def test_the_first_candidates_are_those_of_the_loop(
    drawn: list[str], wanted: int, known: int, start: int, rng: Any
) -> None:
    truth = {"0": UNHELPFUL, "b": VIOLATING, "h": CLEAN}
    size = len(drawn)
    start = start % size if size else 0
    states = bytearray(truth[one] for one in drawn)
    for place in rng.sample(range(size), max(0, size - known)):
        states[place] = UNKNOWN
    victim = PodInfo.of(builders.pod("v"))

    def naive(place: int) -> Victims | Status:
        if drawn[place] == "0":
            return Status(Code.UNSCHEDULABLE)
        return Victims(str(place), (victim,), drawn[place] == "b")

    def judge(place: int) -> None:
        assert states[place] == UNKNOWN, "a place is judged once"
        states[place] = truth[drawn[place]]

    order = [*range(start, size), *range(start)]
    expected = {int(one.node_name) for one in dry_run(order, wanted, naive)}
    count = first_candidates(states, start, wanted, judge)
    assert {place for place in order[:count] if drawn[place] != "0"} == expected
    assert UNKNOWN not in [states[place] for place in order[:count]]


RANKS = st.binary(min_size=32, max_size=32)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.none() | RANKS), min_size=1, max_size=60),
    st.integers(0, 5),
    st.integers(0, 6),
)
def test_the_least_rank_is_found(
    puts: list[tuple[int, Rank | None]], start: int, count: int
) -> None:
    ranking, ranks = np.full(6, NO_RANK, RANK), dict[int, Rank]()
    for place, rank in puts:
        if rank is None:
            ranking[place] = NO_RANK
            ranks.pop(place, None)
        else:
            ranking[place] = ranks[place] = rank
        places = [at for at in [*range(start, 6), *range(start)][:count] if at in ranks]
        assert least(ranking, start, count) == min(places, key=ranks.__getitem__, default=-1)


def test_the_least_rank_is_found_while_ranks_fall() -> None:
    ranking = np.array([number.to_bytes(32, "big") for number in (0, 1, 2000, 2001)], RANK)
    for at in range(100):
        ranking[2 + at % 2] = (1000 - at).to_bytes(32, "big")
        assert least(ranking, 1, 3) == 1
        assert least(ranking, 2, 2) == 2 + at % 2


def test_a_log_returns_what_it_remembers() -> None:
    log: ChangeLog[int] = ChangeLog()
    for at in range(20_000):
        log.note(at)
    assert log.since(log.position) == []
    assert log.since(log.position - 3) == [19_997, 19_998, 19_999]
    assert log.since(0) is None
    assert log.since(log.position + 1) is None
    log.forget()
    assert log.since(log.position - 1) is None


# --- how much work it is -------------------------------------------------------------------------


def crowded(nodes: int) -> Kept:
    world = Kept()
    world.nodes(*(f"n{at}" for at in range(nodes)))
    for at in range(4 * nodes):
        world.put(pod(f"low{at}", 1, "900m", labels={"app": f"a{at % 2}"}), f"n{at % nodes}")
    return world


def room(world: Kept, number: int) -> list[PodInfo]:
    wanting = pod(f"high{number}", 9, "3")
    world.cache.update_node_info_snapshot(world.snapshot)
    nominated = world.nominator.nominations_for(wanting)
    assert isinstance(world.engine.decide(wanting, CycleState(), nominated), Diagnosis)
    found = world.ask(wanting)
    assert found.nominated
    world.nominator.put(wanting, found.nominated)
    return [*found.victims]


def test_each_preemption_looks_at_rows_changed_by_the_last() -> None:
    """Not at every nominated node, nor at every candidate, nor at every node to state why."""
    world = crowded(300)
    for number in range(100):
        for victim in room(world, number):
            world.cache.remove_pod(victim.pod)
    statistics = world.engine.statistics
    assert statistics.serial == statistics.by_row == 0
    assert statistics.built == 1
    assert statistics.diagnosed == 2  # without nominations, and with the first one
    assert statistics.with_nominated <= 3 * 100
    # Each row once; after that the one that was promised, and nothing else.
    assert world.evaluator.tried <= 300 + 100


def test_diagnosis_is_repeated_while_nothing_else_changes() -> None:
    """Nothing counts 5,000 nodes, nor a handful of reasons, to state the same once more."""
    world = crowded(50)
    room(world, 0)
    first = world.decide(pod("one", 9, "3"))
    room(world, 1)  # another node is promised, and refuses for the same reason as before
    assert world.decide(pod("two", 9, "3")) is first
    world.cache.update_node(None, builders.node("n7", unschedulable=True))
    assert world.decide(pod("three", 9, "3")) != first


def test_a_repeated_rejection_counts_what_changed() -> None:
    world = Kept()
    world.nodes("a", "b")
    world.put(pod("on-a", 20, "4"), "a").put(pod("on-b", 20, "4"), "b")
    world.nominator.put(pod("promised", 20, "4"), "a")
    asking = [pod(name, 9, "3", memory="20Gi") for name in ("one", "two", "three")]
    reported = world.decide(asking[0])
    assert isinstance(reported, Diagnosis)
    assert reported.counts == (("Insufficient cpu", 2),)
    world.put(pod("more", 20, "0", memory="16Gi"), "b")
    reported = world.decide(asking[1])
    assert isinstance(reported, Diagnosis)
    assert reported.counts == (("Insufficient cpu", 2), ("Insufficient memory", 1))
    world.cache.remove_pod(pod("on-b", 20, "4").on("b").pod)
    reported = world.decide(asking[2])
    assert isinstance(reported, Diagnosis)
    assert reported.counts == (("Insufficient cpu", 1), ("Insufficient memory", 1))


def test_prefilter_is_asked_per_class_not_per_nomination() -> None:
    asked: list[str] = []

    class Counts:
        def for_each(self, pod: PodInfo) -> bool:
            return bool(pod.claims)

        def pre_filter(self, _: CycleState, pod: PodInfo, __: NodeInfoSnapshot) -> PreFilterResult:
            asked.append(pod.pod.metadata.name)
            return PASS

    world = crowded(10)
    profile = Profile([*plugins.DEFAULT, Plugin("Counts", pre_filter=Counts())])
    engine = Engine(profile, world.snapshot)
    world.nominator.put(pod("first", 9, "3"), "n1")
    world.cache.update_node_info_snapshot(world.snapshot)
    for name in ("first", "second", "third"):
        wanting = pod(name, 9, "3")
        engine.decide(wanting, CycleState(), world.nominator.nominations_for(wanting))
    assert asked == ["first"]


def test_changed_budget_concerns_its_own_pods_alone() -> None:
    world = Kept()
    world.nodes(*(f"n{at}" for at in range(100)))
    for at in range(100):
        app = "few" if at < 3 else "many"
        world.put(pod(f"low{at}", 1, "4", labels={"app": app}), f"n{at}")
    for app in ("few", "many"):
        world.budgets.put(DisruptionBudget("default", app, Labels.parse(f"app={app}"), 50))
    room(world, 0)
    assert world.evaluator.tried == 100
    room(world, 1)
    tried = world.evaluator.tried
    world.budgets.put(DisruptionBudget("default", "few", Labels.parse("app=few"), 49))
    room(world, 2)
    assert world.evaluator.tried <= tried + 3 + 1


def test_what_is_known_of_a_node_outlives_changes_of_others() -> None:
    """Nodes of a large cluster are cordoned, come and go all the time."""
    world = crowded(100)
    room(world, 0)
    assert world.evaluator.tried == 100
    world.cache.update_node(None, builders.node("n7", unschedulable=True))
    room(world, 1)
    assert world.evaluator.tried == 100 + 1  # the one that was promised
    world.nodes("late").put(pod("there", 1, "4"), "late")
    room(world, 2)
    assert world.evaluator.tried == 101 + 2
    world.cache.remove_node(builders.node("n9"))
    room(world, 3)
    assert world.evaluator.tried == 103 + 1
    world.cache.update_node(None, builders.node("n7"))
    room(world, 4)
    assert world.evaluator.tried == 104 + 2  # it was not looked at meanwhile


def test_joining_node_that_refuses_the_pod_has_a_row() -> None:
    """The order of the search stays as it was; what changes there must be of no matter."""
    world = crowded(3)
    room(world, 0)
    world.nodes("late", unschedulable=True).put(pod("there", 1, "4"), "late")
    room(world, 1)
    world.put(pod("another", 1, "1"), "late")
    promised = pod("high2", 9, "3")
    world.nominator.put(promised, "late")
    assert world.preempt(promised) is not None
    assert world.evaluator.tried == 3 + 2


def test_equal_loads_are_asked_about_once() -> None:
    """A thousand nodes alike cost a few questions, not a thousand."""
    world = crowded(200)
    room(world, 0)
    (kept,) = world.evaluator._classes.values()
    assert world.evaluator.tried == 100  # as many as are wanted
    assert len(kept._patterns) == 1
