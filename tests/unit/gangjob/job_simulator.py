"""A job with its pods in memory: applies plans of the core, and acts as nodes and users do.

Pods have the rules that matter: a name is used once at a time, a finalizer keeps a pod, a pod that
runs ends before it goes. Plans can be applied in part, as a crash leaves them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from grange.api.job_status import JobStatus, RoleStatus
from grange.controllers.gangjob import logic
from grange.controllers.gangjob.job_names import gen_general_name
from grange.controllers.gangjob.model import (
    Creation,
    FailureAction,
    GangBackend,
    GangState,
    JobEvent,
    JobInputs,
    JobModel,
    JobPlan,
    JobPod,
    JobRole,
    RestartPolicy,
    SchedulingPolicy,
    ServiceMode,
    SuccessRule,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE_S = 30
NO_GANG = SchedulingPolicy(backend=GangBackend.NONE)
WORKER_0 = SuccessRule(roles=frozenset({"Worker"}), indexes=frozenset({0}))


def gang_job(*roles: JobRole, **fields: Any) -> JobModel:
    """A job of these roles without a gang, unless the fields differ."""
    base = JobModel("GangJob", "default", "train", "job-uid", roles, scheduling=NO_GANG)
    return replace(base, **fields)


def workers(replicas: int = 4, **fields: Any) -> JobRole:
    return replace(JobRole("worker", replicas, {}, RestartPolicy.NEVER), **fields)


def tf_job(
    worker: int = 0,
    ps: int = 0,
    chief: int = 0,
    *,
    policy: RestartPolicy = RestartPolicy.NEVER,
    all_workers: bool = False,
    **fields: Any,
) -> JobModel:
    """A TFJob as its adapter converts it."""
    roles = [
        JobRole("Chief", chief, {}, policy, leader=True, container="tensorflow"),
        JobRole("PS", ps, {}, policy, completes=False, container="tensorflow"),
        JobRole("Worker", worker, {}, policy, container="tensorflow"),
    ]
    rule = SuccessRule() if chief or all_workers else WORKER_0
    base = JobModel(
        "TFJob",
        "default",
        "train",
        "job-uid",
        tuple(role for role in roles if role.replicas),
        scheduling=NO_GANG,
        services=ServiceMode.POD,
        success=(rule,),
    )
    return replace(base, **fields)


def batch_job(completions: int, parallelism: int | None = None, **fields: Any) -> JobModel:
    """A Job of batch/v1 as its adapter converts it: one role without a name."""
    base = JobModel(
        "Job",
        "default",
        "train",
        "job-uid",
        (JobRole("", completions, {}, RestartPolicy.NEVER, parallelism=parallelism),),
        default_action=FailureAction.RESTART_POD,
        scheduling=NO_GANG,
        services=ServiceMode.NONE,
    )
    return replace(base, **fields)


@dataclass
class JobSimulator:
    """The state of the world around one job."""

    model: JobModel
    status: JobStatus = field(default_factory=JobStatus)
    pods: dict[str, JobPod] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)
    gang: GangState = field(default_factory=GangState)
    now: datetime = START
    held: Mapping[tuple[str, int], float] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    status_writes: int = 0
    created: list[str] = field(default_factory=list)
    job_deleted: bool = False
    conflicts: int = 0
    _uids: int = 0

    # --- the controller -----------------------------------------------------------------------

    def inputs(self) -> JobInputs:
        return JobInputs(
            self.model,
            self.status,
            tuple(self.pods.values()),
            frozenset(self.services),
            self.now,
            self.gang,
            self.held,
        )

    def plan(self) -> JobPlan:
        return logic.plan(self.inputs())

    def step(self, *, limit: int | None = None) -> JobPlan:
        """One pass; only the first writes of its plan where a limit is given (a crash)."""
        plan = self.plan()
        for number, write in enumerate(self._writes(plan)):
            if limit is not None and number >= limit:
                return plan
            write()
        self.events += plan.events
        return plan

    def late_writes(self, plan: JobPlan) -> None:
        """The writes of an earlier plan once more, as preconditions let them pass."""
        for deletion in plan.delete:
            if self.pods.get(deletion.pod.name) == deletion.pod:
                self.delete(deletion.pod.name)
        for pod in plan.release:
            self.release(pod.name, uid=pod.uid)
        for creation in plan.create:
            if gen_general_name(self.model.name, creation.role, creation.index) not in self.pods:
                self.create(creation)

    def _writes(self, plan: JobPlan) -> Iterator[Callable[[], object]]:
        if plan.status != self.status:
            yield partial(self.write_status, plan.status)
        for deletion in plan.delete:
            yield partial(self.delete, deletion.pod.name, uid=deletion.pod.uid)
        for pod in plan.release:
            yield partial(self.release, pod.name, uid=pod.uid)
        if plan.gang is not None:
            yield partial(self.set_gang, exists=bool(plan.gang))
        for creation in plan.create:
            yield partial(self.create, creation)
        for name in plan.create_services:
            yield partial(self.services.add, name)
        for name in plan.delete_services:
            yield partial(self.services.discard, name)
        if plan.delete_job:
            yield self.delete_job

    def settle(self, *, most: int = 40) -> int:
        """Passes until nothing changes any more, with nodes that stop what is deleted."""
        for number in range(most):
            plan = self.plan()
            if not has_effect(plan, self.status, gang=self.gang.exists) and not self.stop_deleted():
                return number
            self.step()
            self.stop_deleted()
        raise AssertionError(f"not settled after {most} passes: {self.plan()}")

    # --- the server ---------------------------------------------------------------------------

    def write_status(self, status: JobStatus) -> None:
        self.status = status
        self.status_writes += 1

    def set_gang(self, *, exists: bool) -> None:
        self.gang = replace(self.gang, exists=exists)

    def delete_job(self) -> None:
        self.job_deleted = True

    def create(self, creation: Creation) -> JobPod | None:
        """Create a pod, unless its name is in use."""
        name = gen_general_name(self.model.name, creation.role, creation.index)
        if name in self.pods:
            self.conflicts += 1
            return None
        return self.add(creation.role, creation.index, attempt=creation.attempt, tracked=True)

    def add(self, role: str, index: int, *, name: str = "", **fields: Any) -> JobPod:
        """A pod that is there, however it came."""
        self._uids += 1
        name = name or gen_general_name(self.model.name, role, index)
        base = JobPod(name, f"uid-{self._uids}", role.lower(), index, created_at=self.now)
        self.pods[name] = replace(base, **fields)
        self.created.append(name)
        return self.pods[name]

    def delete(self, name: str, *, uid: str = "", grace_s: int = GRACE_S) -> None:
        """Request the deletion of a pod; one that has nothing to stop goes at once."""
        pod = self.pods.get(name)
        if pod is None or pod.deleting or (uid and pod.uid != uid):
            return
        if pod.phase in ("Succeeded", "Failed") or not pod.scheduled:
            grace_s = 0
        due = self.now + timedelta(seconds=grace_s)
        self._update(
            name,
            deleting=True,
            ready=False,
            deletion_requested_at=self.now,
            deletion_due_at=due,
        )
        if grace_s == 0:
            self._collect(name)

    def release(self, name: str, *, uid: str = "") -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid:
            self._update(name, tracked=False)
            self._collect(name)

    def _collect(self, name: str) -> None:
        pod = self.pods[name]
        ended = pod.phase in ("Succeeded", "Failed") or not pod.scheduled
        if pod.deleting and ended and not pod.tracked:
            del self.pods[name]

    def _update(self, name: str, **fields: Any) -> None:
        self.pods[name] = replace(self.pods[name], **fields)

    # --- nodes --------------------------------------------------------------------------------

    def run(self, *names: str) -> None:
        """Start these pods, or all that are pending."""
        for name in names or list(self.pods):
            if self.pods[name].phase == "Pending" and not self.pods[name].deleting:
                self._update(name, phase="Running", ready=True, scheduled=True)

    def end(self, *names: str, code: int = 0, after_s: float = 1.0, **fields: Any) -> None:
        """Let pods end by themselves."""
        self.now += timedelta(seconds=after_s)
        how: dict[str, Any] = {
            "phase": "Failed" if code else "Succeeded",
            "ready": False,
            "scheduled": True,
            "finished_at": self.now,
            "exit_codes": {"tensorflow": code},
        }
        for name in names:
            self._update(name, **{**how, **fields})
            self._collect(name)

    def fail(self, *names: str, code: int = 1, **fields: Any) -> None:
        self.end(*names, code=code, **fields)

    def restart_in_place(self, name: str, count: int) -> None:
        """Let the node have restarted the containers of a pod so often."""
        self._update(name, restart_counts=count)

    def report(self, text: str, *names: str) -> None:
        """Let these pods, or all, report their progress."""
        for name in names or list(self.pods):
            self._update(name, progress=text)

    def disrupt(self, *names: str) -> None:
        """Preempt pods: marked, deleted and stopped."""
        for name in names:
            self._update(name, conditions={"DisruptionTarget": "True"})
            self.delete(name)
        self.stop_deleted()

    def stop_deleted(self) -> bool:
        """Let nodes end what is being deleted; whether there was anything."""
        stopped = [
            name for name, pod in self.pods.items() if pod.deleting and pod.phase == "Running"
        ]
        self.end(*stopped, code=143, after_s=1.0 if stopped else 0.0)
        return bool(stopped)

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # --- what tests look at --------------------------------------------------------------------

    def started(self, *, most: int = 10) -> "JobSimulator":
        """After passes and nodes have made all pods run."""
        for _ in range(most):
            self.step()
            self.stop_deleted()
            self.run()
        self.settle()
        return self

    def condition(self, kind: str) -> str:
        found = [item for item in self.status.conditions if item.type == kind]
        return found[0].status if found else ""

    def reason(self, kind: str) -> str:
        return next((item.reason for item in self.status.conditions if item.type == kind), "")

    def message(self, kind: str) -> str:
        return next((item.message for item in self.status.conditions if item.type == kind), "")

    @property
    def phase(self) -> str:
        return self.status.phase

    def role(self, name: str = "worker") -> RoleStatus:
        return self.status.replica_statuses[name]

    def uid(self, name: str) -> str:
        return self.pods[name].uid


def has_effect(plan: JobPlan, status: JobStatus, *, gang: bool) -> bool:
    """Whether applying the plan changes anything."""
    return bool(
        plan.status != status
        or plan.delete
        or plan.release
        or plan.create
        or plan.create_services
        or plan.delete_services
        or (plan.gang is not None and plan.gang is not gang)
    )
