"""Which pods are counted in this pass, and which failures the failure policy decides about."""

from grange.controllers.gangjob.job_members import EARLIER_ATTEMPT, INDEX_FINISHED, RoleMembers
from grange.controllers.gangjob.model import JobPod, RestartPolicy
from grange.controllers.gangjob.plan_draft import PlanDraft
from grange.controllers.gangjob.pod_outcomes import (
    ENDED,
    PodOutcome,
    outcome,
    report_overdue_in,
)

REPLACED = "it is replaced"


def count_ended(draft: PlanDraft) -> tuple[list[JobPod], list[JobPod]]:
    """Count completed indexes and surplus pods that ended.

    Returns:
        The failed and the disrupted pods that are not counted yet, by role and index.
    """
    failed: list[JobPod] = []
    disrupted: list[JobPod] = []
    for members in draft.members.roles.values():
        _count_completed(draft, members)
        for pod in members.having(PodOutcome.FAILED, PodOutcome.DISRUPTED):
            if pod.index in members.counts.given_up:
                draft.release(pod)
            elif pod.uid in draft.counts.counted:
                replace(draft, pod)
            elif members.outcomes[pod.index] is PodOutcome.FAILED:
                failed.append(pod)
            else:
                disrupted.append(pod)
        for pod in members.having(PodOutcome.STOPPING):
            _wait_for_report(draft, pod)
        for pod, why in members.surplus:
            _count_surplus(draft, pod, members, why)
    draft.release(*(pod for pod in draft.members.strays if _has_ended(draft, pod)))
    draft.first_counted |= {pod.uid: pod for pod in (*failed, *disrupted)}
    return failed, disrupted


def end_attempt(draft: PlanDraft, members: RoleMembers) -> None:
    """Make all pods of a role surplus; those that are counted by their index stay counted."""
    for pod in members.having(*ENDED):
        finished = pod.index in members.counts.completed or pod.index in members.counts.given_up
        if finished and members.counts.in_place_restarts(pod):
            draft.counts.counted.add(pod.uid)
    if members.counts.in_place:
        # Where the cache is behind, the pod that completed its index is still seen at work.
        late = [pod.uid for pod, why in members.surplus if why == INDEX_FINISHED]
        draft.counts.counted.update(late)
    members.counts.attempt += 1
    members.retire()


def replace(draft: PlanDraft, pod: JobPod) -> None:
    """Give up a counted pod, so that another one can take its name."""
    draft.delete(pod, REPLACED)
    draft.release(pod)


def _count_completed(draft: PlanDraft, members: RoleMembers) -> None:
    counts = members.counts
    for pod in members.having(PodOutcome.COMPLETE):
        draft.release(pod)
        if pod.index in counts.completed or pod.index in counts.given_up:
            continue
        if not counts.role.completes and counts.role.restart_policy is RestartPolicy.ALWAYS:
            if pod.uid not in draft.counts.counted:
                draft.counts.charge_in_place(counts, pod)
                draft.counts.counted.add(pod.uid)
                draft.first_counted[pod.uid] = pod
                draft.ends.add((pod.role, pod.index))
            replace(draft, pod)
            continue
        counts.completed.add(pod.index)
        if pod.uid not in draft.counts.counted:
            draft.counts.charge_in_place(counts, pod)
        draft.completions.add(pod.role)


def _count_surplus(draft: PlanDraft, pod: JobPod, members: RoleMembers, why: str) -> None:
    """The end of a surplus pod triggers nothing; restarts inside of it count if it was wanted."""
    if not _has_ended(draft, pod):
        _wait_for_report(draft, pod)
        return
    if why == EARLIER_ATTEMPT:
        _count_once(draft, pod, members)
    draft.release(pod)


def _count_once(draft: PlanDraft, pod: JobPod, members: RoleMembers) -> None:
    if pod.uid not in draft.counts.counted and draft.counts.charge_in_place(members.counts, pod):
        draft.counts.counted.add(pod.uid)
        draft.first_counted[pod.uid] = pod


def _has_ended(draft: PlanDraft, pod: JobPod) -> bool:
    return outcome(pod, draft.inputs.now) in ENDED


def _wait_for_report(draft: PlanDraft, pod: JobPod) -> None:
    """A pod whose node is lost is let go of at the latest when its end is overdue."""
    if pod.deleting and pod.tracked:
        draft.requeue(report_overdue_in(pod, draft.inputs.now))


def charge_live_pods(draft: PlanDraft) -> None:
    """Charge the restarts inside of pods that are at work: they end with the job."""
    for members in draft.members.roles.values():
        for pod in members.having(PodOutcome.LIVE, PodOutcome.STOPPING):
            _count_once(draft, pod, members)


def live_in_place_restarts(draft: PlanDraft) -> dict[str, int]:
    """By role in lower case, restarts inside of pods that are at work and not counted yet."""
    return {
        name: sum(
            members.counts.in_place_restarts(pod)
            for pod in members.having(PodOutcome.LIVE, PodOutcome.STOPPING)
            if pod.uid not in draft.counts.counted
        )
        for name, members in draft.members.roles.items()
        if members.counts.in_place
    }
