"""What every kind of job keeps in its status, whatever the rest of the kind looks like.

Counts of pods come from the pods that exist. Everything that cannot be derived from them again
(restarts, finished indexes, which pods are counted) is kept here, because the pods that prove it
are deleted.
"""

import msgspec

from grange.api.meta import Condition, View

CREATED = "Created"
QUEUED = "Queued"
RUNNING = "Running"
RESTARTING = "Restarting"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
CONDITION_TYPES = (CREATED, QUEUED, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED)
"""The types of a job's conditions; ``Succeeded`` and ``Failed`` never change once they are True."""
FINISHED_TYPES = (SUCCEEDED, FAILED)


class RoleStatus(View, frozen=True):
    """The pods of one role.

    Attributes:
        active: pods that run and are not being deleted; once the job is finished, those that stay.
        pending: pods that have not started; counted for Jobs of batch/v1.
        ready: pods whose Ready condition is True.
        succeeded: indexes that are complete; for a role that never completes, pods that succeeded.
        failed: pods that ended without success, in all attempts; not those that a rule ignores.
        selector: label selector of the role's pods, as text.
        attempt: how often the whole role was restarted; pods of an earlier attempt are deleted.
        restarts: charged restarts of the role's pods.
        in_place_restarts: restarts of containers in pods that are at work; charged when the pod ends.
        completed_indexes: as ranges: ``0-3,7``.
        failed_indexes: indexes that are given up, as ranges.
        index_restarts: charged restarts by index, where there are any.
    """

    active: int = 0
    pending: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str = ""
    attempt: int = 0
    restarts: int = 0
    in_place_restarts: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    index_restarts: dict[str, int] = msgspec.field(default_factory=dict)


PROGRESS = "grange.dev/progress"
"""Annotation of a pod: how far it is, as ``PERCENT MESSAGE``. An agent keeps it equal to the pod's
GRANGE_PROGRESS_FILE where the pod is created with it."""


class JobProgress(View, frozen=True):
    """How far a job is, as its pods report it.

    Attributes:
        percent: 0 to 100.
        message: what the pod wrote with it.
        updated_at: RFC 3339.
    """

    percent: float = 0.0
    message: str = ""
    updated_at: str = ""


class JobStatus(View, frozen=True):
    """What is.

    Attributes:
        observed_generation: the generation that this status is about.
        phase: type of the condition that describes the job best.
        conditions: one a type.
        start_time: RFC 3339; when it was first acted on, again after each resumption.
        completion_time: RFC 3339; set once, with Succeeded or Failed.
        replica_statuses: by role.
        restarts: charged restarts of the whole job and of its pods, compared with the limit.
        restarts_towards_max: those of them that the failure policy made, compared with its limit.
        uncharged_restarts: those that disruptions and rules caused without a charge.
        counted_pods: UIDs of pods that are counted above, exist still and cannot be recognized as
            counted by their index.
        pod_group: name of the gang's object; empty without one.
        queue: whose quota the gang uses.
        quota_used: how much of it, of the resources that the queue limits.
        progress: the last report of a pod.
        spec_digests: of the parts of the spec that may not change while the job runs, by path.
    """

    observed_generation: int = 0
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: str = ""
    completion_time: str = ""
    replica_statuses: dict[str, RoleStatus] = msgspec.field(default_factory=dict)
    restarts: int = 0
    restarts_towards_max: int = 0
    uncharged_restarts: int = 0
    counted_pods: tuple[str, ...] = ()
    pod_group: str = ""
    queue: str = ""
    quota_used: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    progress: JobProgress | None = None
    spec_digests: dict[str, str] = msgspec.field(default_factory=dict)
