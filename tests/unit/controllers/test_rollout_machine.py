"""Random histories of a rollout: no order of events breaks the minimum, and there is always an end.

The model is the pure core alone: ``rollout.decide`` and ``logic.plan`` over a dict of pods. Templates
with an odd number are bad: their pods never become ready. What is taken on purpose is judged by the
limits of the very decision; what dies by itself is not.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from tests.unit.controllers import builders

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition
from grange.controllers.replication import deletion_budgets, logic, podtemplate, rollout
from grange.controllers.replication.plan import Addition, Inputs, Plan
from grange.controllers.shared import availability, pod_identity
from grange.controllers.shared.rollout_phase import RolloutPhase

NODES = ("n0", "n1", "n2", "n3", "n4", "n5")  # one more than pods: there is room for surge
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Rollouts(RuleBasedStateMachine):
    """One controller whose template, size and settings change while its pods come and go."""

    placement = "Packed"

    def __init__(self) -> None:
        super().__init__()
        self.now = EPOCH
        self.made = 0
        self.pods: dict[str, Pod] = {}
        self.down: set[str] = set()
        self.wish: dict[str, Any] = {"replicas": 3, "version": 0, "rollout": {}}
        self.owner = self.make()

    def make(self) -> ReplicationController:
        template = {**builders.TEMPLATE, "metadata": {"labels": {"v": str(self.wish["version"])}}}
        self.made += 1
        return builders.controller(
            replicas=self.wish["replicas"],
            generation=self.made,
            placement=self.placement,
            template=template,
            rollout={"progressDeadlineSeconds": 60, **self.wish["rollout"]},
        )

    @initialize(replicas=st.integers(0, 5), unavailable=st.sampled_from([0, 1, 2, "25%", "100%"]))
    def begin(self, replicas: int, unavailable: int | str) -> None:
        self.wish["replicas"] = replicas
        self.wish["rollout"] = {"maxUnavailable": unavailable, "autoRollback": bool(replicas % 2)}
        self.owner = self.make()

    def edit(self, **changes: Any) -> None:
        self.wish |= changes
        self.owner = replace(self.make(), status=self.owner.status)

    # --- the controller -----------------------------------------------------------------------

    @rule()
    def reconcile(self) -> None:
        self.act()

    def act(self) -> bool:
        """One pass; whether it changed anything."""
        owned = [self.pods[name] for name in sorted(self.pods)]
        active = [pod for pod in owned if pods.is_active(pod)]
        seen = availability.observe(self.owner, active, self.down, self.now)
        observed = Inputs(
            self.owner, owned, NODES, down=frozenset(self.down), available=seen.available
        )
        decision = rollout.decide(observed, self.now)
        limits = decision.limits if decision.sides is not None else None
        plan = logic.plan(
            Inputs(
                decision.controller,
                owned,
                NODES,
                down=frozenset(self.down),
                available=seen.available,
                limits=limits,
                sides=decision.sides,
            )
        )
        minimum = (limits or deletion_budgets.limits(self.owner)).minimum
        gone = {removal.pod.metadata.uid for removal in plan.delete}
        left = len(seen.available - gone)
        assert left >= min(len(seen.available), minimum), "never below the minimum"
        self.check_ceiling(active, plan, decision)
        changed = decision.controller.status != self.owner.status
        self.owner = replace(self.owner, status=decision.controller.status)
        for removal in plan.delete:
            self.remove(removal.pod)
        for addition in plan.create:
            self.create(addition, decision.controller)
        return changed or bool(plan.delete or plan.create)

    def check_ceiling(
        self, active: list[Pod], plan: Plan, decision: rollout.RolloutDecision
    ) -> None:
        if plan.create and decision.sides is not None:
            after = len(active) - len(plan.delete) + len(plan.create)
            assert after <= max(len(active), decision.limits.ceiling)

    def create(self, addition: Addition, owner: ReplicationController) -> None:
        if addition.name in self.pods:
            return
        self.made += 1
        source = addition.source or owner
        document = podtemplate.pod_document(source, name=addition.name, node=addition.node)
        document["metadata"]["uid"] = f"uid-{self.made}"
        document["status"] = {"phase": "Pending"}
        self.pods[addition.name] = msgspec.convert(document, Pod)

    def remove(self, pod: Pod) -> None:
        if pod.spec.node_name:
            meta = replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self.pods[pod.metadata.name] = replace(pod, metadata=meta)
        else:
            self.pods.pop(pod.metadata.name, None)

    # --- what happens -------------------------------------------------------------------------

    @rule(version=st.integers(0, 4))
    def change_template(self, version: int) -> None:
        self.edit(version=version)

    @rule(replicas=st.integers(0, 5))
    def scale(self, replicas: int) -> None:
        self.edit(replicas=replicas)

    @rule(paused=st.booleans(), canary=st.sampled_from([None, None, 0, 1, 2, "50%"]))
    def steer(self, paused: bool, canary: int | str | None) -> None:
        self.edit(rollout={**self.wish["rollout"], "paused": paused, "canary": canary})

    @rule(kind=st.sampled_from(["RollingUpdate", "RollingUpdate", "OnDelete"]))
    def change_type(self, kind: str) -> None:
        self.edit(rollout={**self.wish["rollout"], "type": kind})

    @rule(seconds=st.sampled_from([1, 30, 61, 300]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(node=st.sampled_from(NODES), away=st.booleans())
    def lose_sight(self, node: str, away: bool) -> None:
        (self.down.add if away else self.down.discard)(node)

    @precondition(lambda self: self.pods)
    @rule(index=st.integers(0, 9), ready=st.booleans())
    def agent_reports(self, index: int, ready: bool) -> None:
        self.report(sorted(self.pods)[index % len(self.pods)], ready)

    def report(self, name: str, ready: bool) -> None:
        pod = self.pods[name]
        node = pod.spec.node_name or pod_identity.pinned_node(pod) or NODES[len(name) % len(NODES)]
        good = int(pod.metadata.labels["v"]) % 2 == 0
        stated = Condition(type="Ready", status=str(ready and good), last_transition_time="")
        self.pods[name] = replace(
            pod,
            spec=replace(pod.spec, node_name=node),
            status=replace(pod.status, phase="Running", conditions=(stated,)),
        )

    @precondition(lambda self: self.pods)
    @rule(index=st.integers(0, 9), how=st.sampled_from(["evicted", "gone", "Failed"]))
    def pod_ends(self, index: int, how: str) -> None:
        pod = self.pods[sorted(self.pods)[index % len(self.pods)]]
        if how == "gone":
            del self.pods[pod.metadata.name]
        elif how == "evicted":
            self.remove(pod)
        elif pod.spec.node_name:
            status = replace(pod.status, phase="Failed", conditions=())
            self.pods[pod.metadata.name] = replace(pod, status=status)

    @rule()
    def agents_finish(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.metadata.deletion_timestamp:
                del self.pods[name]

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def the_templates_that_are_needed_are_remembered(self) -> None:
        status = self.owner.status
        if status.rollout is not None:
            known = {item.template_hash for item in status.history}
            needed = {status.rollout.template_hash, status.rollout.spec_hash}
            assert needed <= known
            numbers = [item.revision for item in status.history]
            assert numbers == sorted(set(numbers))

    def teardown(self) -> None:
        """A good template, nothing in the way: all pods are of it in the end, and nothing moves."""
        self.down.clear()
        self.edit(version=8, rollout={**self.wish["rollout"], "paused": False, "canary": None})
        self.edit(rollout={**self.wish["rollout"], "type": "RollingUpdate"})
        for _ in range(80):
            changed = self.act()
            self.agents_finish()
            for name in self.pods:
                self.report(name, ready=True)
            if not changed:
                break
        state = self.owner.status.rollout
        assert state is not None
        assert RolloutPhase(state.phase) is RolloutPhase.COMPLETE, state
        live = [pod for pod in self.pods.values() if not pods.is_finished(pod)]
        assert [pod.metadata.labels["v"] for pod in live] == ["8"] * self.wish["replicas"]


class SpreadRollouts(Rollouts):
    """The same with one pod on a node at most."""

    placement = "OnePerNode"


_SETTINGS = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestPackedRollouts = Rollouts.TestCase
TestSpreadRollouts = SpreadRollouts.TestCase
TestPackedRollouts.settings = _SETTINGS
TestSpreadRollouts.settings = _SETTINGS
