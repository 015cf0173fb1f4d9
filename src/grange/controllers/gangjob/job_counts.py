"""What a job counts across the life of its pods: attempts, restarts and finished indexes.

Loaded from the status, changed by the parts of the core, and written back. A pod is counted once:
an index that is complete or given up is in a set, so counting its pod again changes nothing; any
other counted pod is remembered by its UID until it is gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from grange.api import index_ranges
from grange.api.job_status import JobStatus, RoleStatus
from grange.controllers.gangjob.model import JobModel, JobPod, JobRole, RestartPolicy

_RESTARTS_IN_PLACE = frozenset({RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE})


@dataclass(slots=True)
class RoleCounts:
    """The counts of one role; most attributes are those of ``RoleStatus``, as sets and numbers.

    Attributes:
        role: whose.
        in_place: whether restarts of containers by the node count as the job's.
        by_rule: whether it is a rule of the failure policy that makes them.
    """

    role: JobRole
    in_place: bool = False
    by_rule: bool = False
    attempt: int = 0
    failed: int = 0
    restarts: int = 0
    completed: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    index_restarts: dict[int, int] = field(default_factory=dict)

    @property
    def finished(self) -> int:
        """Indexes that need no pod any more."""
        return len(self.completed) + len(self.given_up)

    @property
    def spare(self) -> int:
        """Members that an elastic role can still lose; 0 for a role of fixed size."""
        if self.role.min_replicas is None:
            return 0
        return self.role.replicas - len(self.given_up) - self.role.min_replicas

    def in_place_restarts(self, pod: JobPod) -> int:
        """Restarts of the pod's containers by the node that count as the job's."""
        return pod.restart_counts if self.in_place else 0

    def clear_indexes(self) -> None:
        """Let all indexes run again."""
        self.completed.clear()
        self.given_up.clear()


@dataclass(slots=True)
class JobCounts:
    """The counts of a job."""

    roles: dict[str, RoleCounts]
    restarts: int = 0
    restarts_towards_max: int = 0
    uncharged_restarts: int = 0
    counted: set[str] = field(default_factory=set)

    def charge(
        self, role: RoleCounts, index: int, restarts: int = 1, *, towards_max: bool = False
    ) -> None:
        """Charge restarts to an index, its role and the job."""
        self.restarts += restarts
        role.restarts += restarts
        role.index_restarts[index] = role.index_restarts.get(index, 0) + restarts
        if towards_max:
            self.restarts_towards_max += restarts

    def charge_in_place(self, role: RoleCounts, pod: JobPod) -> bool:
        """Charge the restarts inside of a pod that ended; whether there were any."""
        restarts = role.in_place_restarts(pod)
        if restarts:
            self.charge(role, pod.index, restarts, towards_max=role.by_rule)
        return restarts > 0


def load(model: JobModel, status: JobStatus, pods: Iterable[JobPod]) -> JobCounts:
    """The counts of the status, without indexes that the roles do not have and pods that are gone."""
    existing = {pod.uid for pod in pods}
    before = {name.lower(): item for name, item in status.replica_statuses.items()}
    return JobCounts(
        roles={
            role.name.lower(): _load_role(model, role, before.get(role.name.lower(), RoleStatus()))
            for role in model.roles
        },
        restarts=status.restarts,
        restarts_towards_max=status.restarts_towards_max,
        uncharged_restarts=status.uncharged_restarts,
        counted=existing.intersection(status.counted_pods),
    )


def _load_role(model: JobModel, role: JobRole, status: RoleStatus) -> RoleCounts:
    completed = _indexes(status.completed_indexes, role.replicas)
    by_rule = model.restarts_by_rule(role)
    return RoleCounts(
        role=role,
        in_place=by_rule or role.restart_policy in _RESTARTS_IN_PLACE,
        by_rule=by_rule,
        attempt=status.attempt,
        failed=status.failed,
        restarts=status.restarts,
        completed=completed,
        given_up=_indexes(status.failed_indexes, role.replicas) - completed,
        index_restarts={
            int(index): number
            for index, number in status.index_restarts.items()
            if index.isdecimal() and int(index) < role.replicas
        },
    )


def _indexes(text: str, replicas: int) -> set[int]:
    try:
        return {index for index in index_ranges.parse(text) if index < replicas}
    except index_ranges.InvalidIndexRanges:
        return set()  # edited by a user: the indexes run again


def write(
    status: JobStatus,
    counts: JobCounts,
    *,
    active: Mapping[str, int],
    pending: Mapping[str, int],
    ready: Mapping[str, int],
    in_place: Mapping[str, int],
) -> JobStatus:
    """The status with these counts.

    Args:
        status: what was written last; what is not counted here is taken from it.
        counts: what is counted.
        active: pods that run, by role in lower case.
        pending: pods that have not started, by role in lower case, where they are counted.
        ready: pods that are ready, by role in lower case.
        in_place: restarts inside of pods at work that are not counted yet, by role in lower case.
    """
    before = {name.lower(): item for name, item in status.replica_statuses.items()}
    return replace(
        status,
        replica_statuses={
            item.role.name: RoleStatus(
                active=active.get(key, 0),
                pending=pending.get(key, 0),
                ready=ready.get(key, 0),
                succeeded=len(item.completed),
                failed=item.failed,
                selector=before[key].selector if key in before else "",
                attempt=item.attempt,
                restarts=item.restarts,
                in_place_restarts=in_place.get(key, 0),
                completed_indexes=index_ranges.written(item.completed),
                failed_indexes=index_ranges.written(item.given_up),
                index_restarts={
                    str(index): number for index, number in sorted(item.index_restarts.items())
                },
            )
            for key, item in counts.roles.items()
        },
        restarts=counts.restarts,
        restarts_towards_max=counts.restarts_towards_max,
        uncharged_restarts=counts.uncharged_restarts,
        counted_pods=tuple(sorted(counts.counted)),
    )
