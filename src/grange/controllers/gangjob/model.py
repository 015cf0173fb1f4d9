"""A job as the controller's core sees it, whatever kind it was written as.

Every kind (GangJob, TFJob, PyTorchJob, batch/v1 Job) is converted to a ``JobModel`` and its pods to
``JobPod``; the core turns ``JobInputs`` into a ``JobPlan``. None of it knows the API of a kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from grange.api.job_status import JobStatus
from grange.api.meta import Document


class RestartPolicy(Enum):
    """What happens to a pod of a role that fails."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(Enum):
    """Which pods are deleted when the job is finished."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class FailureAction(Enum):
    """What a rule of the failure policy does."""

    RESTART_JOB = "RestartJob"
    RESTART_JOB_UNCHARGED = "RestartJobAndIgnoreMaxRestarts"
    RESTART_ROLE = "RestartRole"
    RESTART_POD = "RestartPod"
    RESTART_POD_IN_PLACE = "RestartPodInPlace"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


class Await(Enum):
    """What a role waits for in another before its pods are created."""

    READY = "Ready"
    COMPLETE = "Complete"


class ServiceMode(Enum):
    """Which headless Services a job has: one for all pods, one for each, or none."""

    JOB = "Job"
    POD = "Pod"
    NONE = "None"


class GangBackend(Enum):
    """Who places the gang, and by which object."""

    GRANGE = "Grange"
    DISRUPTION_BUDGET = "PodDisruptionBudget"
    SCHEDULER_PLUGINS = "SchedulerPlugins"
    VOLCANO = "Volcano"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class RoleDependency:
    """A role that has to be Ready or Complete first."""

    role: str
    condition: Await = Await.READY


@dataclass(frozen=True, slots=True)
class JobRole:
    """One kind of member of a job.

    Attributes:
        name: as the kind spells it (``Worker``); labels and names of objects have it in lower case.
        replicas: how many indexes there are: 0 to replicas - 1.
        template: metadata and spec of a pod, as a full document.
        restart_policy: what happens to a pod that fails and matches no rule.
        min_replicas: the role runs with no fewer than so many; None: all of them.
        max_replicas: it may be scaled to so many; None: the role is not elastic.
        min_available: members of this role in the gang's quorum; None: ``min_replicas`` or all.
        parallelism: the most pods at a time; None: all.
        depends_on: what has to be reached before its pods are created.
        leader: its outcome decides the job's (chief, master, launcher).
        completes: whether a pod that succeeds is done; else (servers) it is restarted or left.
        backoff_limit_per_index: charged restarts of an index before it is given up; None: no limit.
        max_failed_indexes: so many may be given up before the job fails; None: no limit.
        container: the framework's container, whose exit code counts; empty: the first.
    """

    name: str
    replicas: int
    template: Document = field(default_factory=dict)
    restart_policy: RestartPolicy = RestartPolicy.NEVER
    min_replicas: int | None = None
    max_replicas: int | None = None
    min_available: int | None = None
    parallelism: int | None = None
    depends_on: tuple[RoleDependency, ...] = ()
    leader: bool = False
    completes: bool = True
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    container: str = ""


@dataclass(frozen=True, slots=True)
class ExitCodeMatch:
    """Exit codes of a container: In or NotIn the values; an empty container means any."""

    values: frozenset[int]
    negated: bool = False
    container: str = ""


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One rule; every part that is given has to match, and at least one part is given.

    Attributes:
        action: what to do with the failure.
        name: for reasons and messages.
        roles: whose failures it is about; empty: any.
        exit_codes: of the pod's containers.
        reasons: of the pod or of a terminated container (``OOMKilled``, ``Evicted``).
        pod_conditions: type and status pairs, any of which the pod has.
    """

    action: FailureAction
    name: str = ""
    roles: frozenset[str] = frozenset()
    exit_codes: ExitCodeMatch | None = None
    reasons: frozenset[str] = frozenset()
    pod_conditions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """Targeted indexes of the roles that have to be complete: all of them or any.

    Attributes:
        any_of: one targeted index is enough; else all are needed.
        roles: the targeted roles; empty: the leader where there is one, else every role that completes.
        indexes: the targeted indexes; None: all of a role.
        count: so many complete targeted indexes are enough; None: ``any_of`` decides.
        drain: once the indexes are complete no pod is created any more, and the rule is met when the
            last one has ended (workers that share a queue); else it is met at once.
        reason: of the condition when the rule is met; empty: the kind's own.
    """

    any_of: bool = False
    roles: frozenset[str] = frozenset()
    indexes: frozenset[int] | None = None
    count: int | None = None
    drain: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How the members of an elastic PyTorch job find each other; empty values: torchrun's own.

    Attributes:
        backend: ``c10d``, ``etcd`` or ``etcd-v2``.
        host: of the endpoint; empty: the first worker.
        port: of the endpoint; None: the port of the framework's container.
        identifier: of the rendezvous; empty: the job's name.
        options: ``key=value`` pairs, in order.
        standalone: the endpoint is local; for one node.
        max_restarts: of the worker group by torchrun itself; None: torchrun's default.
    """

    backend: str = "c10d"
    host: str = ""
    port: int | None = None
    identifier: str = ""
    options: tuple[tuple[str, str], ...] = ()
    standalone: bool = False
    max_restarts: int | None = None


@dataclass(frozen=True, slots=True)
class Wiring:
    """Input of a framework's plugin beyond the roles.

    Attributes:
        processes_per_node: a number, ``auto``, ``cpu`` or ``gpu``; empty: one.
        sparse: a member knows only those that it needs, so that workers may come and go.
        rendezvous: of an elastic job; None: the job has a fixed size.
    """

    processes_per_node: str = ""
    sparse: bool = False
    rendezvous: Rendezvous | None = None


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """How the gang is placed.

    Attributes:
        backend: who places it.
        min_available: members in the quorum; None: the sum of the roles' own.
        min_resources: what must be free before it is tried; empty: the quorum's requests.
        queue: whose quota it uses.
        priority_class: of the gang.
        timeout_s: scheduleTimeoutSeconds of the group.
        topology_key: the node label within whose value the members should be together.
        topology_required: whether they must.
    """

    backend: GangBackend = GangBackend.GRANGE
    min_available: int | None = None
    min_resources: Mapping[str, int | float | str] = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    timeout_s: int | None = None
    topology_key: str = ""
    topology_required: bool = True


@dataclass(frozen=True, slots=True)
class JobModel:
    """What is wanted, in the terms of the core.

    Attributes:
        kind: ``GangJob``, for reasons and messages.
        namespace: of the job and of all its pods.
        name: of the job.
        uid: of the job.
        generation: of the job's spec.
        roles: in the order in which they are created.
        framework: name of the plugin that wires the members together; empty: none.
        wiring: options of that plugin.
        clean_pod_policy: which pods go when it is finished.
        ttl_s: seconds from the end to the job's deletion; None: never.
        active_deadline_s: seconds it may run, not counting suspension; None: no limit.
        backoff_limit: charged restarts before it fails; None: no limit.
        suspend: whether its pods are to be away.
        failure_rules: in order; the first that matches decides.
        max_restarts: charged restarts by rules and by ``default_action`` before it fails; None: no
            limit.
        blocking_restart: a restart of the job creates nothing before every old pod is gone.
        default_action: for a failure of a pod that its restart policy does not restart.
        success: it has succeeded when one of these rules is met.
        scheduling: how its gang is placed.
        services: which Services it has.
        deleting: whether the job has a deletion timestamp.
        minimum_attempts: a role in an earlier attempt is restarted; by role in lower case.
        spec_digests: of the parts of the spec that may not change while the job runs, by path; none where
            the server of the kind refuses such changes in any case.
        counts_pending: whether the status counts pods that have not started; that costs one more write.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    roles: tuple[JobRole, ...]
    generation: int = 0
    framework: str = "Generic"
    wiring: Wiring = Wiring()
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    ttl_s: int | None = None
    active_deadline_s: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    failure_rules: tuple[FailureRule, ...] = ()
    max_restarts: int | None = None
    blocking_restart: bool = False
    default_action: FailureAction = FailureAction.FAIL_JOB
    success: tuple[SuccessRule, ...] = (SuccessRule(),)
    scheduling: SchedulingPolicy = SchedulingPolicy()
    services: ServiceMode = ServiceMode.JOB
    deleting: bool = False
    minimum_attempts: Mapping[str, int] = field(default_factory=dict)
    spec_digests: Mapping[str, str] = field(default_factory=dict)
    counts_pending: bool = False

    def role(self, name: str) -> JobRole | None:
        """The role of a name, in any case of letters; None where there is none."""
        wanted = name.lower()
        return next((item for item in self.roles if item.name.lower() == wanted), None)

    def restarts_in_place(self, role: JobRole) -> bool:
        """Whether the node restarts containers of the role's pods.

        Under ``OnFailure`` it does, unless a rule looks at exit codes or reasons: a pod whose
        containers are restarted in place never fails, so the rule would never see the failure.
        """
        if role.restart_policy is not RestartPolicy.ON_FAILURE:
            return role.restart_policy is RestartPolicy.ALWAYS
        return not any(
            (rule.exit_codes is not None or rule.reasons)
            and (not rule.roles or role.name in rule.roles)
            for rule in self.failure_rules
        )

    def restarts_by_rule(self, role: JobRole) -> bool:
        """Whether a rule has the node restart containers of the role's pods."""
        return role.restart_policy is not RestartPolicy.ALWAYS and any(
            rule.action is FailureAction.RESTART_POD_IN_PLACE
            and (not rule.roles or role.name in rule.roles)
            for rule in self.failure_rules
        )


@dataclass(frozen=True, slots=True)
class JobPod:
    """A pod of a job, as far as the core looks at it.

    Attributes:
        name: of the pod.
        uid: of the pod.
        resource_version: of what was read.
        role: its role label: lower case.
        index: its index label; -1 where it is missing or malformed.
        attempt: its attempt label.
        phase: Pending, Running, Succeeded or Failed.
        ready: whether its Ready condition is True.
        deleting: whether it has a deletion timestamp.
        deletion_requested_at: when that was set; an end before it was the pod's own.
        deletion_due_at: when its grace period is over.
        tracked: whether it has the finalizer that keeps it until it is counted.
        scheduled: whether it has a node.
        created_at: for age.
        finished_at: when its last container ended; None while it runs.
        exit_codes: of terminated containers, by name, init containers included.
        restart_counts: restarts of its containers in place, added up; without those that followed
            stops of their node.
        reasons: of the pod and of its terminated containers.
        conditions: status by type.
        message: how it ended, for people.
        progress: what it last reported; see ``job_progress``.
    """

    name: str
    uid: str
    role: str
    index: int
    resource_version: str = ""
    attempt: int = 0
    phase: str = "Pending"
    ready: bool = False
    deleting: bool = False
    deletion_requested_at: datetime | None = None
    deletion_due_at: datetime | None = None
    tracked: bool = True
    scheduled: bool = False
    created_at: datetime | None = None
    finished_at: datetime | None = None
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    restart_counts: int = 0
    reasons: frozenset[str] = frozenset()
    conditions: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    progress: str = ""


@dataclass(frozen=True, slots=True)
class GangState:
    """The state of the gang's object.

    Attributes:
        exists: whether there is one.
        name: of its object; goes into the status.
        admitted: pods may be created (always so for backends that admit the pods themselves).
        scheduled: its quorum has nodes.
        reason: why it waits: ``OverQuota``, ``NoRoom`` …
        message: the same for people.
        used: what counts for it in its queue, by resource; empty where that is not known.
    """

    exists: bool = False
    name: str = ""
    admitted: bool = True
    scheduled: bool = False
    reason: str = ""
    message: str = ""
    used: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobInputs:
    """All that a plan is made from.

    Attributes:
        model: what is wanted.
        status: what was written last.
        pods: that the job controls, in any order; read no earlier than the status, because a pod
            that is counted in the status and missing here is taken to be gone.
        services: names of the Services that the job controls.
        gang: the state of its gang.
        now: wall time.
        held: pods that may not be created yet (back-off), by role in lower case and index, and for
            how many seconds.
    """

    model: JobModel
    status: JobStatus
    pods: tuple[JobPod, ...]
    services: frozenset[str]
    now: datetime
    gang: GangState = GangState()
    held: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Creation:
    """A pod to create: its role by name, its index, and the attempt that it belongs to."""

    role: str
    index: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """A pod to delete, and why (for the event)."""

    pod: JobPod
    reason: str


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event to record on the job after its status is written."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to do, in the order of the attributes.

    Attributes:
        status: to be written before anything that depends on it; equal to the old one: no write.
        delete: pods, with UID and resourceVersion preconditions.
        release: pods of which nothing remains to be counted; their finalizer is removed.
        gang: whether the gang's object should exist; None: it is left as it is.
        create: pods.
        create_services: names of Services.
        delete_services: names of Services.
        events: recorded when the status is written.
        delete_job: the time to live is over.
        requeue_s: look again after so many seconds; None: only when something changes.
        ends: of pods that failed by themselves, or of servers that ended, and are counted now, charged or
            not: the role in lower case and the index. Their back-off starts when the status is written.
        first_counted: pods whose end this status is the first to count. One that is gone was counted before, and
            the cache is behind.
    """

    status: JobStatus
    delete: tuple[Deletion, ...] = ()
    release: tuple[JobPod, ...] = ()
    gang: bool | None = None
    create: tuple[Creation, ...] = ()
    create_services: tuple[str, ...] = ()
    delete_services: tuple[str, ...] = ()
    events: tuple[JobEvent, ...] = ()
    delete_job: bool = False
    requeue_s: float | None = None
    ends: frozenset[tuple[str, int]] = frozenset()
    first_counted: tuple[JobPod, ...] = ()
