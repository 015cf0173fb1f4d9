"""Random histories of one controller on a naive cluster: what must hold at every step, and that it
comes to rest when the trouble stops.

The model is as simple as can be: live pods in a dict, a cache that is a copy with a list of
changes not yet delivered, and the pass of the controller: claim, plan, carry out in order until a
write fails. Scheduler, agents, users and the garbage collector are rules.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from tests.unit.controllers import builders

from grange.api.kinds import pod as pods
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition, controller_of
from grange.controllers.replication import deletion_budgets, logic, podtemplate
from grange.controllers.replication.plan import Addition, Inputs, Plan, Repair
from grange.controllers.replication.pod_control import PodClaims, sort_by_owner
from grange.controllers.shared import pod_identity
from grange.placement.node_demand import Demand
from grange.reconcile.expectations import Expectations

NODES = ("n0", "n1", "n2", "n3", "n4")
SELECTED = {"use": "yes"}


class ManualClock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at

    def elapsed(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class Cluster(RuleBasedStateMachine):
    """One controller, five nodes, and everything that can happen to them."""

    placement = "OnePerNode"

    def __init__(self) -> None:
        super().__init__()
        self.expectations = Expectations(ManualClock())
        self.nodes: dict[str, Node] = {}
        self.live: dict[str, Pod] = {}
        self.cache: dict[str, Pod] = {}
        self.undelivered: list[tuple[str, Pod | None, Pod | None]] = []
        self.count = 0
        self.meddled = False  # users take pods out by their label, and put their own in
        self.controller = self.make(0)

    def make(
        self, replicas: int, *, paused: bool = False, version: int = 1
    ) -> ReplicationController:
        template = {**builders.TEMPLATE, "metadata": {"labels": {"version": str(version)}}}
        return builders.controller(
            replicas=replicas,
            paused=paused,
            placement=self.placement,
            template=template,
            nodeSelector={"matchLabels": SELECTED},
        )

    @initialize(count=st.integers(0, 5), replicas=st.integers(0, 5), meddled=st.booleans())
    def begin(self, count: int, replicas: int, meddled: bool) -> None:
        self.meddled = meddled
        for name in NODES[:count]:
            self.nodes[name] = builders.node(name, labels=SELECTED)
        self.controller = self.make(replicas)

    # --- the API ------------------------------------------------------------------------------

    def put(self, pod: Pod) -> None:
        old = self.live.get(pod.metadata.name)
        self.live[pod.metadata.name] = pod
        self.undelivered.append((pod.metadata.name, old, pod))

    def remove(self, name: str) -> None:
        self.undelivered.append((name, self.live.pop(name), None))

    def ask_to_go(self, pod: Pod) -> None:
        """What a delete does: unbound and finished pods vanish, the others terminate."""
        if pod.spec.node_name and not pods.is_finished(pod):
            meta = replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self.put(replace(pod, metadata=meta))
        else:
            self.remove(pod.metadata.name)

    def deliver(self, limit: int) -> None:
        """Show the cache some of what happened, and tick expectations off as the handlers do."""
        uid = self.controller.metadata.uid
        for name, old, new in self.undelivered[:limit]:
            known = self.cache.get(name)
            if new is None or (known is not None and known.metadata.uid != new.metadata.uid):
                self.cache.pop(name, None)
                if old is not None:
                    self.expectations.deletion_observed(uid, old.metadata.uid)
            if new is not None:
                if name not in self.cache:
                    self.expectations.creation_observed(uid, name)
                if new.metadata.deletion_timestamp:
                    self.expectations.deletion_observed(uid, new.metadata.uid)
                self.cache[name] = new
        del self.undelivered[:limit]

    # --- the controller -----------------------------------------------------------------------

    def eligible(self) -> list[str]:
        demand = Demand.of(self.controller)
        return sorted(name for name, node in self.nodes.items() if demand.accepts(node))

    def owned(self) -> list[Pod]:
        uid = self.controller.metadata.uid
        return [pod for pod in self.live.values() if _owner(pod) == uid]

    def active(self) -> int:
        return sum(map(pods.is_active, self.owned()))

    def decide(self) -> tuple[PodClaims, Inputs, Plan]:
        claim = sort_by_owner(self.controller, list(self.cache.values()))
        adopted = () if self.controller.spec.paused else claim.adopt
        owned = [*claim.owned, *adopted]
        names = {pod.metadata.name for pod in owned}
        situation = builders.inputs(
            self.controller, owned, self.eligible(), taken=self.cache.keys() - names
        )
        return claim, situation, logic.plan(situation)

    def act(self, writes: int) -> bool:
        """One pass, whose writes fail after so many; whether it wrote anything."""
        uid = self.controller.metadata.uid
        if not self.expectations.satisfied(uid):
            return False
        claim, situation, plan = self.decide()
        self.check(situation, plan)
        work: list[tuple[str, object]] = []
        if not self.controller.spec.paused:
            work += [("adopt", pod) for pod in claim.adopt]
            work += [("release", pod) for pod in claim.release]
        work += [("delete", removal.pod) for removal in plan.delete]
        work += [("repair", repair) for repair in plan.repair]
        work += [("create", addition) for addition in plan.create]
        for kind, item in work[:writes]:
            getattr(self, f"do_{kind}")(item)
        return bool(work[:writes])

    def check(self, situation: Inputs, plan: Plan) -> None:
        """What every plan must keep, given what it knew."""
        replicas = self.controller.spec.replicas
        gone = {removal.pod.metadata.uid for removal in plan.delete}
        staying = [
            pod for pod in situation.owned if pods.is_active(pod) and pod.metadata.uid not in gone
        ]
        if any(removal.why == "Surplus" for removal in plan.delete):
            moved = sum(removal.why == "NodeIneligible" for removal in plan.delete)
            assert len(staying) + moved >= replicas
        if plan.create:
            assert len(staying) - len(self.doubles(staying)) + len(plan.create) <= replicas
        assert all(
            _owner(removal.pod) in {None, self.controller.metadata.uid} for removal in plan.delete
        )
        assert len(gone) == len(plan.delete)
        if self.placement == "OnePerNode":
            nodes = [addition.node for addition in plan.create]
            assert nodes == sorted(nodes)
            occupied = {pod_identity.node_of(pod) for pod in staying}
            assert not occupied.intersection(nodes)
            skipped = [
                node
                for node in situation.eligible
                if node not in nodes
                and nodes
                and node < nodes[-1]
                and node not in {pod_identity.node_of(pod) for pod in situation.owned}
            ]
            assert not skipped

    def do_adopt(self, pod: Pod) -> None:
        live = self.live.get(pod.metadata.name)
        if live is None or live.metadata.uid != pod.metadata.uid or _owner(live):
            return
        self.put(_owned(self.controller, live))

    def do_release(self, pod: Pod) -> None:
        live = self.live.get(pod.metadata.name)
        if live is not None and live.metadata.uid == pod.metadata.uid:
            self.put(replace(live, metadata=replace(live.metadata, owner_references=())))

    def do_delete(self, pod: Pod) -> None:
        uid = self.controller.metadata.uid
        live = self.live.get(pod.metadata.name)
        if live is None or live.metadata.uid != pod.metadata.uid or _owner(live) != uid:
            return
        if live.metadata.deletion_timestamp:
            return
        self.expectations.expect_deletions(uid, {pod.metadata.uid: pod.metadata.name})
        self.ask_to_go(live)

    def do_repair(self, repair: Repair) -> None:
        live = self.live.get(repair.pod.metadata.name)
        if live is not None and live.metadata.uid == repair.pod.metadata.uid:
            labels = {**live.metadata.labels, **repair.labels}
            self.put(replace(live, metadata=replace(live.metadata, labels=labels)))

    def do_create(self, addition: Addition) -> None:
        if addition.name in self.live:
            return  # AlreadyExists
        self.count += 1
        uid = self.controller.metadata.uid
        self.expectations.expect_creations(uid, [addition.name])
        document = podtemplate.pod_document(self.controller, name=addition.name, node=addition.node)
        document["metadata"]["uid"] = f"uid-{self.count}"
        document["metadata"]["creationTimestamp"] = f"2026-01-01T00:{self.count % 60:02}:00Z"
        document["status"] = {"phase": "Pending"}
        self.put(msgspec.convert(document, Pod))

    # --- what happens -------------------------------------------------------------------------

    @rule(writes=st.sampled_from((0, 1, 2, 99, 99, 99)))
    def reconcile(self, writes: int) -> None:
        most = max(self.active() + self.orphans(), self.controller.spec.replicas)
        self.act(writes)
        assert self.active() <= most

    def orphans(self) -> int:
        return sum(_owner(pod) is None for pod in self.live.values())

    @rule(limit=st.integers(1, 5))
    def receive(self, limit: int) -> None:
        self.deliver(limit)

    @rule(replicas=st.integers(0, 6), paused=st.booleans(), version=st.integers(1, 2))
    def edit(self, replicas: int, paused: bool, version: int) -> None:
        self.controller = self.make(replicas, paused=paused, version=version)

    @rule(name=st.sampled_from(NODES), selected=st.booleans(), ready=st.booleans())
    def node_changes(self, name: str, selected: bool, ready: bool) -> None:
        self.nodes[name] = builders.node(name, labels=SELECTED if selected else {}, ready=ready)

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        """Its bound pods are collected."""
        self.nodes.pop(name, None)
        for pod in list(self.live.values()):
            if pod.spec.node_name == name:
                self.remove(pod.metadata.name)

    def pick(self, index: int) -> Pod:
        return list(self.live.values())[index % len(self.live)]

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 9))
    def bind(self, index: int) -> None:
        pod = self.pick(index)
        eligible = self.eligible()
        target = pod_identity.pinned_node(pod) or (eligible[0] if eligible else "")
        if not pod.spec.node_name and target in eligible and not pod.metadata.deletion_timestamp:
            self.put(replace(pod, spec=replace(pod.spec, node_name=target)))

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 9))
    def becomes_ready(self, index: int) -> None:
        pod = self.pick(index)
        if pod.spec.node_name and not pods.is_finished(pod) and pod.status.phase != "Running":
            ready = Condition(type="Ready", status="True")
            self.put(replace(pod, status=replace(pod.status, phase="Running", conditions=(ready,))))

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 9), phase=st.sampled_from(("Failed", "Succeeded")))
    def ends(self, index: int, phase: str) -> None:
        pod = self.pick(index)
        if pod.spec.node_name:
            self.put(replace(pod, status=replace(pod.status, phase=phase, conditions=())))

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 9))
    def user_deletes(self, index: int) -> None:
        pod = self.pick(index)
        if not pod.metadata.deletion_timestamp:
            self.ask_to_go(pod)

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 9), label=st.sampled_from((None, "web", "quarantine")))
    def user_relabels(self, index: int, label: str | None) -> None:
        pod = self.pick(index)
        if label == "quarantine" and not self.meddled:
            return
        labels = {k: v for k, v in pod.metadata.labels.items() if k != pod_identity.RC_NAME_LABEL}
        if label is not None:
            labels[pod_identity.RC_NAME_LABEL] = label
        self.put(replace(pod, metadata=replace(pod.metadata, labels=labels)))

    @precondition(lambda self: self.meddled)
    @rule(name=st.sampled_from(NODES), number=st.integers(0, 2))
    def orphan_appears(self, name: str, number: int) -> None:
        if f"orphan-{number}" not in self.live and name in self.nodes:
            self.count += 1
            made = builders.pod(
                self.controller,
                node=name,
                name=f"orphan-{number}",
                uid=f"uid-{self.count}",
                orphan=True,
            )
            self.put(made)

    @rule()
    def agents_finish(self) -> None:
        for pod in list(self.live.values()):
            if pod.metadata.deletion_timestamp:
                self.remove(pod.metadata.name)

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def never_two_on_a_node(self) -> None:
        """Unless a user meddles: a pod taken out and given back meets its successor."""
        if self.placement == "OnePerNode" and not self.meddled:
            there = Counter(pod_identity.node_of(pod) for pod in self.owned())
            assert all(count == 1 for node, count in there.items() if node), there

    def teardown(self) -> None:
        """The trouble stops: the cluster comes to rest, and there it is as wanted."""
        self.edit(self.controller.spec.replicas, paused=False, version=1)
        for _ in range(40):
            self.deliver(len(self.undelivered))
            wrote = self.act(99)
            self.agents_finish()
            for index in range(len(self.live)):
                self.bind(index)
                self.becomes_ready(index)
            if not wrote and not self.undelivered:
                break
        else:
            raise AssertionError("the cluster does not come to rest")
        self.rests()

    def doubles(self, active: Sequence[Pod]) -> list[Pod]:
        """Bound pods beyond the first on their own node; the budget states when they may go."""
        seen: set[str] = set()
        doubles = []
        for pod in active if self.placement == "OnePerNode" else ():
            node = pod.spec.node_name
            if node and node in seen:
                doubles.append(pod)
            seen.add(node)
        return doubles

    def rests(self) -> None:
        _, _, plan = self.decide()
        replicas = self.controller.spec.replicas
        active = [pod for pod in self.owned() if pods.is_active(pod)]
        assert not plan.create
        assert not plan.delete
        assert not plan.repair
        assert len(active) - len(self.doubles(active)) <= replicas
        assert self.meddled or len(self.owned()) == len(self.live)
        for pod in active:
            current = pod_identity.template_hash(self.controller)
            made_from = pod.metadata.labels[pod_identity.TEMPLATE_HASH_LABEL]
            assert pod.spec.node_name or made_from == current
        if self.placement == "OnePerNode":
            running = [pod for pod in active if pod.spec.node_name]
            served = {pod.spec.node_name for pod in running}
            free = set(self.eligible()) - {pod_identity.node_of(pod) for pod in active}
            assert len(served) == replicas or not free
            assert plan.short == replicas - len(served)
            if self.doubles(active):
                # A user gave us two pods on one node, there is no other node, and without the
                # second one fewer than the budget's minimum would serve: it stays until there is.
                assert self.meddled
                assert len(running) <= deletion_budgets.limits(self.controller).minimum
        else:
            assert len(active) == replicas


class PackedCluster(Cluster):
    """The same with packed pods."""

    placement = "Packed"


def _owner(pod: Pod) -> str | None:
    reference = controller_of(pod.metadata)
    return None if reference is None else reference.uid


def _owned(controller: ReplicationController, pod: Pod) -> Pod:
    document = podtemplate.pod_document(controller, name=pod.metadata.name)
    made = msgspec.convert(document, Pod)
    references: Sequence[object] = made.metadata.owner_references
    return replace(pod, metadata=replace(pod.metadata, owner_references=tuple(references)))


TestOnePerNode = Cluster.TestCase
TestPacked = PackedCluster.TestCase
_SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOnePerNode.settings = _SETTINGS
TestPacked.settings = _SETTINGS
