"""Random lives of jobs: pods end, are disrupted and deleted; the controller crashes at any write, and
a former owner repeats writes. Whatever happens, nothing is lost or counted twice, and ends are final.
"""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.gangjob.job_simulator import JobSimulator, batch_job, gang_job, tf_job, workers

from grange.controllers.gangjob import logic
from grange.controllers.gangjob.job_conditions import is_finished
from grange.controllers.gangjob.model import (
    CleanPodPolicy,
    ExitCodeMatch,
    FailureAction,
    FailureRule,
    JobModel,
    JobPlan,
    RestartPolicy,
)

CODES = st.sampled_from([1, 42, 137])
ENDED = ("Succeeded", "Failed")


def rules(action: FailureAction) -> tuple[FailureRule, ...]:
    return (FailureRule(action, exit_codes=ExitCodeMatch(frozenset({42}))),)


ON_FAILURE = RestartPolicy.ON_FAILURE
MODELS: list[JobModel] = [
    tf_job(worker=3, ps=1, policy=RestartPolicy.EXIT_CODE, backoff_limit=3),
    tf_job(worker=2, chief=1, policy=ON_FAILURE, clean_pod_policy=CleanPodPolicy.ALL),
    batch_job(4, parallelism=2, backoff_limit=2),
    gang_job(workers(3, restart_policy=ON_FAILURE), failure_rules=rules(FailureAction.IGNORE)),
    gang_job(
        workers(3),
        workers(1, name="server", completes=False),
        default_action=FailureAction.RESTART_JOB,
        max_restarts=2,
        blocking_restart=True,
    ),
    gang_job(
        workers(3, restart_policy=ON_FAILURE),
        workers(2, name="other", restart_policy=ON_FAILURE),
        failure_rules=rules(FailureAction.RESTART_ROLE),
    ),
    gang_job(workers(4, min_replicas=2), clean_pod_policy=CleanPodPolicy.NONE, ttl_s=60),
    gang_job(workers(3, backoff_limit_per_index=1), default_action=FailureAction.RESTART_POD),
]


class JobLife(RuleBasedStateMachine):
    """A job under everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = JobSimulator(MODELS[0])
        self.plans: list[JobPlan] = []
        self.end: Any = None
        self.totals = (0, 0, 0)
        self.attempts: dict[str, int] = {}

    @initialize(model=st.sampled_from(MODELS))
    def begin(self, model: JobModel) -> None:
        self.world = JobSimulator(model)

    def names(self, *phases: str, deleting: bool | None = None) -> list[str]:
        return [
            name
            for name, pod in self.world.pods.items()
            if pod.phase in phases and deleting in (None, pod.deleting)
        ]

    @rule()
    def reconcile(self) -> None:
        conflicts, writes = self.world.conflicts, self.world.status_writes
        self.plans.append(self.world.step())  # a former owner may repeat what follows the status
        assert self.world.conflicts == conflicts
        assert self.world.status_writes <= writes + 1

    @rule(writes=st.integers(0, 6))
    def crash(self, writes: int) -> None:
        before = self.world.status
        plan = self.world.step(limit=writes)
        if writes or plan.status == before:
            self.plans.append(plan)

    @precondition(lambda self: self.plans)
    @rule(data=st.data())
    def repeat_late_writes(self, data: st.DataObject) -> None:
        self.world.late_writes(data.draw(st.sampled_from(self.plans)))

    @rule()
    def run_pods(self) -> None:
        self.world.run()

    @rule(data=st.data(), code=CODES)
    def fail_pod(self, data: st.DataObject, code: int) -> None:
        if names := self.names("Pending", "Running", deleting=False):
            self.on_failure(data.draw(st.sampled_from(names)), code)

    def on_failure(self, name: str, code: int) -> None:
        self.world.fail(name, code=code)

    @rule(data=st.data())
    def complete_pod(self, data: st.DataObject) -> None:
        if names := self.names("Running", deleting=False):
            self.on_completion(data.draw(st.sampled_from(names)))

    def on_completion(self, name: str) -> None:
        self.world.end(name)

    @rule(data=st.data())
    def restart_in_place(self, data: st.DataObject) -> None:
        if names := self.names("Running", deleting=False):
            name = data.draw(st.sampled_from(names))
            self.world.restart_in_place(name, self.world.pods[name].restart_counts + 1)

    @rule(data=st.data())
    def disrupt_pod(self, data: st.DataObject) -> None:
        if names := self.names("Running", deleting=False):
            self.world.disrupt(data.draw(st.sampled_from(names)))

    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        self.world.forward(1)
        if self.world.pods:
            self.world.delete(data.draw(st.sampled_from(sorted(self.world.pods))))

    @rule()
    def stop_pods(self) -> None:
        self.world.stop_deleted()

    @rule(seconds=st.sampled_from([1, 20, 40]))
    def pass_time(self, seconds: int) -> None:
        self.world.forward(seconds)

    @invariant()
    def end_is_final(self) -> None:
        status = self.world.status
        now = (status.phase, status.conditions, status.completion_time)
        if self.end is not None:
            assert now == self.end
        elif is_finished(status):
            self.end = now

    @invariant()
    def nothing_is_taken_back(self) -> None:
        status = self.world.status
        totals = (status.restarts, status.restarts_towards_max, status.uncharged_restarts)
        assert all(new >= old for new, old in zip(totals, self.totals, strict=True))
        self.totals = totals
        for name, role in status.replica_statuses.items():
            assert role.attempt >= self.attempts.get(name, 0)
            self.attempts[name] = role.attempt

    @invariant()
    def running_is_false_at_the_end(self) -> None:
        if is_finished(self.world.status):
            assert self.world.condition("Running") != "True"
            assert self.world.condition("Restarting") != "True"

    def teardown(self) -> None:
        """Once nothing fails any more, the job settles and ends."""
        world = self.world
        for _ in range(40):
            world.settle()
            if is_finished(world.status):
                break
            world.run()
            names = self.names("Running", deleting=False)
            for name in names:
                self.on_completion(name)
        assert is_finished(world.status)
        assert set(world.status.counted_pods) <= {pod.uid for pod in world.pods.values()}
        assert not any(pod.tracked for pod in world.pods.values())
        writes = world.status_writes
        world.step()
        assert world.status_writes == writes


class JobLifeWithChanges(JobLife):
    """The same, with a user who suspends, resumes and scales."""

    @rule(suspend=st.booleans())
    def suspend_or_resume(self, suspend: bool) -> None:
        self.world.model = replace(self.world.model, suspend=suspend)

    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        roles = list(self.world.model.roles)
        number = data.draw(st.integers(0, len(roles) - 1))
        least = roles[number].min_replicas or 1
        roles[number] = replace(roles[number], replicas=data.draw(st.integers(least, 6)))
        self.world.model = replace(self.world.model, roles=tuple(roles))

    def teardown(self) -> None:
        self.world.model = replace(self.world.model, suspend=False)
        super().teardown()


class ExactCharges(JobLife):
    """Without limits every failure is charged once, and so is every restart inside of a pod."""

    @initialize()
    def begin(self) -> None:
        role = workers(3, restart_policy=ON_FAILURE)
        self.world = JobSimulator(gang_job(role, clean_pod_policy=CleanPodPolicy.NONE))
        self.failures = 0
        self.in_place: dict[str, int] = {}
        self.complete: set[int] = set()

    def on_failure(self, name: str, code: int) -> None:
        if self.world.pods[name].index not in self.complete:
            self.failures += 1
        super().on_failure(name, code)

    def on_completion(self, name: str) -> None:
        super().on_completion(name)
        if name in self.world.pods:
            self.complete.add(self.world.pods[name].index)

    @invariant()
    def note_restarts(self) -> None:
        for pod in self.world.pods.values():
            if pod.index not in self.complete or pod.uid in self.in_place:
                self.in_place[pod.uid] = pod.restart_counts

    def teardown(self) -> None:
        super().teardown()
        assert self.world.status.restarts == self.failures + sum(self.in_place.values())


class ExactChargesOverAttempts(ExactCharges):
    """The same, with restarts of the job that are not charged themselves."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        restart = rules(FailureAction.RESTART_JOB_UNCHARGED)
        self.world.model = replace(self.world.model, failure_rules=restart)

    def attempt(self) -> int:
        roles = self.world.status.replica_statuses
        return roles["worker"].attempt if roles else 0

    def on_failure(self, name: str, code: int) -> None:
        self.world.step()  # what failed before is not covered by the restart
        pod = self.world.pods.get(name)
        if pod is None or pod.deleting or pod.phase in ENDED or pod.attempt < self.attempt():
            return
        if code != 42:
            super().on_failure(name, code)
        elif pod.index not in self.complete:
            self.world.fail(name, code=code)
            self.note_restarts()
            self.world.step()
            self.complete.clear()

    def on_completion(self, name: str) -> None:
        current = self.world.pods[name].attempt == self.attempt()
        JobLife.on_completion(self, name)
        if current and name in self.world.pods:
            self.complete.add(self.world.pods[name].index)


BOUNDS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestJobLife = JobLife.TestCase
TestJobLife.settings = BOUNDS
TestJobLifeWithChanges = JobLifeWithChanges.TestCase
TestJobLifeWithChanges.settings = BOUNDS
TestExactCharges = ExactCharges.TestCase
TestExactCharges.settings = BOUNDS
TestExactChargesOverAttempts = ExactChargesOverAttempts.TestCase
TestExactChargesOverAttempts.settings = BOUNDS


@given(order=st.permutations(range(8)))
def test_plan_does_not_depend_on_the_order_of_pods(order: list[int]) -> None:
    world = JobSimulator(gang_job(workers(5), default_action=FailureAction.RESTART_JOB)).started()
    world.add("worker", 9)
    world.add("worker", 1, name="x")
    world.add("worker", 1, name="y", phase="Running")
    world.fail("train-worker-0", "train-worker-2")
    inputs = world.inputs()
    shuffled = replace(inputs, pods=tuple(inputs.pods[number] for number in order))
    assert logic.plan(shuffled) == logic.plan(inputs)
