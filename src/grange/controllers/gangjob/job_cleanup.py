"""What a finished job leaves behind: pods and Services by its policy, and itself for a while."""

from collections.abc import Collection, Iterable
from datetime import datetime

from grange.api import timestamps
from grange.api.job_status import JobStatus
from grange.controllers.gangjob.job_names import gen_general_name
from grange.controllers.gangjob.model import (
    CleanPodPolicy,
    JobInputs,
    JobModel,
    JobPod,
    ServiceMode,
)

CLEANED_UP = "the job is finished"
_AT_WORK = frozenset({"Pending", "Running"})


def divide(
    pods: Iterable[JobPod], policy: CleanPodPolicy, status: JobStatus, now: datetime
) -> tuple[list[JobPod], list[JobPod]]:
    """The pods that stay after the job has finished, and those that do not or are being deleted.

    Args:
        pods: of the job.
        policy: of the job.
        status: of the finished job.
        now: its end where the status lacks it.
    """
    end = timestamps.parse_or(status.completion_time, now)
    kept: list[JobPod] = []
    going: list[JobPod] = []
    for pod in pods:
        stays = not pod.deleting and _is_kept(pod, policy, end)
        (kept if stays else going).append(pod)
    return kept, going


def _is_kept(pod: JobPod, policy: CleanPodPolicy, finished_at: datetime) -> bool:
    """Whether a pod stays after the job has finished.

    A pending pod would run later, so it counts as running. A pod at work that is younger than the end
    of the job was created by a late write, and never stays.
    """
    if policy is CleanPodPolicy.ALL:
        return False
    if pod.phase not in _AT_WORK:
        return True
    return policy is CleanPodPolicy.NONE and (
        pod.created_at is None or pod.created_at <= finished_at
    )


def wanted_services(model: JobModel) -> tuple[str, ...]:
    """The Services of a job that is at work; they outlive single pods, so that names stay valid."""
    if model.services is ServiceMode.JOB:
        return (model.name,)
    if model.services is ServiceMode.NONE:
        return ()
    return tuple(
        gen_general_name(model.name, role.name, index)
        for role in model.roles
        for index in range(role.replicas)
    )


def kept_services(model: JobModel, kept: Collection[JobPod]) -> frozenset[str]:
    """The Services of a finished job: those of pods that stay."""
    if model.services is ServiceMode.JOB and kept:
        return frozenset({model.name})
    if model.services is ServiceMode.POD:
        return frozenset(pod.name for pod in kept)
    return frozenset()


def time_to_live(model: JobModel, status: JobStatus, now: datetime) -> float | None:
    """Seconds until the finished job is deleted, 0 or less: at once; None: never.

    A completion time in the future (clocks differ) only defers the deletion.
    """
    if model.ttl_s is None:
        return None
    end = timestamps.parse_or(status.completion_time, now)
    return (end - now).total_seconds() + model.ttl_s


def deadline_in(inputs: JobInputs, status: JobStatus) -> float | None:
    """Seconds until the job has been active for too long; None: no limit, or it is suspended."""
    limit = inputs.model.active_deadline_s
    if limit is None or not status.start_time:
        return None
    start = timestamps.parse_or(status.start_time, inputs.now)
    return (start - inputs.now).total_seconds() + limit
