"""Which pod stands for which index of a role, and which pods are surplus."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from grange.api import timestamps
from grange.controllers.gangjob.job_counts import JobCounts, RoleCounts
from grange.controllers.gangjob.model import JobPod
from grange.controllers.gangjob.pod_outcomes import ENDED, PodOutcome, outcome

EARLIER_ATTEMPT = "its attempt is over"
DUPLICATE = "another pod has its index"
INDEX_FINISHED = "its index needs no pod any more"
NOT_WANTED = "its role has no such index"
TOO_MANY = "the parallelism is exceeded"

_ORDER = {
    PodOutcome.COMPLETE: 0,
    PodOutcome.LIVE: 1,
    PodOutcome.FAILED: 2,
    PodOutcome.STOPPING: 3,
    PodOutcome.DISRUPTED: 4,
}


@dataclass(slots=True)
class RoleMembers:
    """The pods of one role.

    Attributes:
        counts: of the role.
        current: the pod of each index, of the current attempt, in the order of the indexes.
        outcomes: of the pods in ``current``.
        surplus: pods that are deleted and trigger no policy, and why.
        occupied: indexes whose pods' names are in use.
    """

    counts: RoleCounts
    current: dict[int, JobPod] = field(default_factory=dict)
    outcomes: dict[int, PodOutcome] = field(default_factory=dict)
    surplus: list[tuple[JobPod, str]] = field(default_factory=list)
    occupied: set[int] = field(default_factory=set)

    def having(self, *outcomes: PodOutcome) -> list[JobPod]:
        """The pods of ``current`` with one of these outcomes, by index."""
        stands = self.outcomes
        return [pod for index, pod in self.current.items() if stands[index] in outcomes]

    def remove(self, index: int, why: str) -> None:
        """Make the pod of an index surplus."""
        self.outcomes.pop(index)
        self.surplus.append((self.current.pop(index), why))

    def retire(self) -> None:
        """Make all pods surplus, because the role starts another attempt."""
        for index in list(self.current):
            self.remove(index, EARLIER_ATTEMPT)

    @property
    def started(self) -> bool:
        """Whether the current attempt has pods, or has had some."""
        return bool(self.current) or self.counts.finished > 0


@dataclass(slots=True)
class JobMembers:
    """All pods of a job, by role in lower case.

    Attributes:
        roles: the pods of each role, in the order of the job's roles.
        strays: pods of roles that the job does not have.
    """

    roles: dict[str, RoleMembers]
    strays: list[JobPod] = field(default_factory=list)

    def surplus(self) -> list[tuple[JobPod, str]]:
        """The surplus of all roles, strays included."""
        found = [item for members in self.roles.values() for item in members.surplus]
        return found + [(pod, NOT_WANTED) for pod in self.strays]


def assign(counts: JobCounts, pods: Iterable[JobPod], now: datetime) -> JobMembers:
    """The pods by role and index; of several for one index the best stays."""
    members = JobMembers({name: RoleMembers(item) for name, item in counts.roles.items()})
    for pod in pods:
        role = members.roles.get(pod.role)
        if role is None:
            members.strays.append(pod)
        elif not 0 <= pod.index < role.counts.role.replicas:
            role.surplus.append((pod, NOT_WANTED))
        else:
            role.occupied.add(pod.index)
            if pod.attempt < role.counts.attempt:
                role.surplus.append((pod, EARLIER_ATTEMPT))
            else:
                _assign_to_index(role, pod, now)
    for role in members.roles.values():
        role.current = dict(sorted(role.current.items()))
        _remove_finished_indexes(role)
        _remove_stopped_by_parallelism(role)
    return members


def _assign_to_index(role: RoleMembers, pod: JobPod, now: datetime) -> None:
    stands = outcome(pod, now)
    other = role.current.get(pod.index)
    if other is not None:
        if _quality(pod, stands) > _quality(other, role.outcomes[pod.index]):
            role.surplus.append((pod, DUPLICATE))
            return
        role.surplus.append((other, DUPLICATE))
    role.current[pod.index], role.outcomes[pod.index] = pod, stands


def _quality(pod: JobPod, stands: PodOutcome) -> tuple[int, bool, datetime, str]:
    """The lowest is the best: complete, then at work, then ready, then old."""
    return (_ORDER[stands], not pod.ready, pod.created_at or timestamps.EPOCH, pod.uid)


def _remove_finished_indexes(role: RoleMembers) -> None:
    """A pod that came late to an index that is finished has nothing to do."""
    for index in list(role.current):
        ended = role.outcomes[index] in ENDED
        if index in role.counts.completed:
            if role.outcomes[index] is not PodOutcome.COMPLETE:
                role.remove(index, INDEX_FINISHED)
        elif index in role.counts.given_up and not ended:
            role.remove(index, INDEX_FINISHED)


def _remove_stopped_by_parallelism(role: RoleMembers) -> None:
    """Pods that are being deleted in excess of as many as the role may have were deleted for that."""
    limit = role.counts.role.parallelism
    if limit is None or len(role.having(PodOutcome.LIVE)) < limit:
        return
    for pod in role.having(PodOutcome.STOPPING, PodOutcome.DISRUPTED):
        if pod.deleting:
            role.remove(pod.index, TOO_MANY)
