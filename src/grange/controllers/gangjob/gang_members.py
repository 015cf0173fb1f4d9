"""Which members a job's gang can still have."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from grange.api import index_ranges
from grange.api.job_status import JobStatus, RoleStatus
from grange.controllers.gangjob.model import JobModel, JobPod, JobRole


def without_finished(model: JobModel, status: JobStatus, pods: Iterable[JobPod]) -> JobModel:
    """The job without members that have ended and count for no scheduler.

    A scheduler counts the pods that exist and did not fail. An index that is complete or given up
    gets no other pod, so that its place in the quorum would stay empty, and pods that replace others
    would wait for it.
    """
    ended = {
        role.name.lower(): _finished(role, status.replica_statuses.get(role.name, RoleStatus()))
        for role in model.roles
    }
    if not any(ended.values()):
        return model
    counted = Counter(
        pod.role
        for pod in pods
        if pod.phase == "Succeeded" and not pod.deleting and pod.index in ended.get(pod.role, ())
    )
    roles = tuple(
        _shrunk(role, len(ended[role.name.lower()]) - counted[role.name.lower()])
        for role in model.roles
    )
    return replace(model, roles=roles)


def _finished(role: JobRole, status: RoleStatus) -> set[int]:
    try:
        ended = index_ranges.parse(status.completed_indexes)
        given_up = index_ranges.parse(status.failed_indexes)
    except index_ranges.InvalidIndexRanges:
        return set()  # edited by a user: the indexes run again
    return {index for index in ended | given_up if index < role.replicas}


def _shrunk(role: JobRole, by: int) -> JobRole:
    most = max(0, role.replicas - by)

    def capped(number: int | None) -> int | None:
        return None if number is None else min(number, most)

    return replace(
        role,
        replicas=most,
        min_replicas=capped(role.min_replicas),
        min_available=capped(role.min_available),
    )
