"""Which indexes get a pod now: gates, dependencies, parallelism, and names that are free."""

from collections.abc import Iterator

from grange.controllers.gangjob import role_dependencies, success_policy
from grange.controllers.gangjob.job_members import EARLIER_ATTEMPT, TOO_MANY, RoleMembers
from grange.controllers.gangjob.model import Creation, GangBackend, JobPod
from grange.controllers.gangjob.plan_draft import PlanDraft
from grange.controllers.gangjob.pod_outcomes import PodOutcome

AT_WORK = (PodOutcome.LIVE, PodOutcome.STOPPING)


def plan_pods(draft: PlanDraft) -> None:
    """Delete the pods that are too many, and create those that are missing."""
    for members in draft.members.roles.values():
        _remove_too_many(draft, members)
    draft.delete_surplus()
    if not _is_admitted(draft) or success_policy.is_draining(draft) or _is_blocked(draft):
        return
    for members in draft.members.roles.values():
        if members.started or role_dependencies.are_met(draft, members):
            for index in _missing(members):
                _create(draft, members, index)


def needed(draft: PlanDraft, members: RoleMembers) -> int:
    """How many pods of a role have to run for it to be whole."""
    role = members.counts.role
    if not members.started and not role_dependencies.are_met(draft, members):
        return 0
    pods = role.replicas - members.counts.finished
    if role.min_replicas is not None:
        pods = min(pods, role.min_replicas - len(members.counts.completed))
    if role.parallelism is not None:
        pods = min(pods, role.parallelism)
    return max(0, pods)


def _is_admitted(draft: PlanDraft) -> bool:
    backend = draft.model.scheduling.backend
    return backend is GangBackend.NONE or draft.inputs.gang.admitted


def _is_blocked(draft: PlanDraft) -> bool:
    """Whether a restart waits until the last pod of an earlier attempt is gone."""
    return draft.model.blocking_restart and any(
        why == EARLIER_ATTEMPT for _, why in draft.members.surplus()
    )


def _missing(members: RoleMembers) -> Iterator[int]:
    """Indexes without a pod, as many as the parallelism allows, the lowest first."""
    role, counts = members.counts.role, members.counts
    room = role.replicas if role.parallelism is None else role.parallelism
    room -= len(members.having(*AT_WORK))
    room -= sum(pod.phase in ("Pending", "Running") for pod, _ in members.surplus)
    for index in range(role.replicas):
        if room <= 0:
            return
        if index in counts.completed or index in counts.given_up or index in members.occupied:
            continue
        room -= 1
        yield index


def _create(draft: PlanDraft, members: RoleMembers, index: int) -> None:
    role = members.counts.role
    after_s = draft.inputs.held.get((role.name.lower(), index), 0.0)
    if after_s > 0:
        draft.requeue(after_s)
    else:
        draft.creations.append(Creation(role.name, index, members.counts.attempt))


def _remove_too_many(draft: PlanDraft, members: RoleMembers) -> None:
    """Delete pods beyond the parallelism: those that are not ready first, then the highest."""
    limit = members.counts.role.parallelism
    if limit is None:
        return

    def rank(pod: JobPod) -> tuple[bool, int]:
        return (not pod.ready, pod.index)

    live = sorted(members.having(PodOutcome.LIVE), key=rank)
    for pod in live[max(0, limit) :]:
        members.remove(pod.index, TOO_MANY)
