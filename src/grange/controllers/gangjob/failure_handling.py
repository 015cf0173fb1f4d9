"""Carries out the decisions of the failure policy, and keeps the limits of restarts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace as with_changes

from grange.base.first_few import first_few
from grange.controllers.gangjob import failure_policy
from grange.controllers.gangjob.failure_policy import OF_JOB, FailureDecision, describe
from grange.controllers.gangjob.job_members import INDEX_FINISHED, RoleMembers
from grange.controllers.gangjob.job_reasons import JobReason
from grange.controllers.gangjob.model import FailureAction, JobEvent, JobPod
from grange.controllers.gangjob.plan_draft import JobEnd, PlanDraft
from grange.controllers.gangjob.pod_counting import (
    charge_live_pods,
    end_attempt,
    live_in_place_restarts,
    replace,
)
from grange.controllers.gangjob.pod_outcomes import PodOutcome

_NAMED = 3  # pods that a message lists
MOST_COUNTED = 500
"""Pods that are counted by UID in one pass, so that the status stays small."""


def handle_failures(
    draft: PlanDraft, failed: Iterable[JobPod], disrupted: Iterable[JobPod]
) -> JobEnd | None:
    """Restart, give up or fail for the pods that are not counted yet.

    Returns:
        How the job ended; None: it goes on.
    """
    decisions = [
        failure_policy.decide(draft.model, _members(draft, pod).counts.role, pod) for pod in failed
    ]
    uncharged = []
    for pod in disrupted:
        role = _members(draft, pod).counts.role
        decision = failure_policy.decide_disruption(draft.model, role, pod)
        if decision is None:
            uncharged.append(pod)
        else:
            decisions.append(decision)
    ordered = _shrink_elastic(
        draft, failure_policy.in_order(decisions, draft.model.failure_rules, draft.inputs.now)
    )
    decisive = next((item for item in ordered if item.action in OF_JOB), None)
    if decisive is not None:
        _count_failed(draft, ordered)
        return _handle_job(draft, decisive)
    end = _restart_roles(draft, ordered)
    return end or _handle_pods(draft, ordered, uncharged)


def restart_requested(draft: PlanDraft) -> set[str]:
    """Restart the roles that a user wants in a later attempt, uncharged.

    Returns:
        The roles, in lower case. How the pods of their earlier attempt ended means nothing.
    """
    wanted, restarted = draft.model.minimum_attempts, set()
    for name, members in draft.members.roles.items():
        attempt = wanted.get(name, 0)
        if members.counts.attempt >= attempt:
            continue
        end_attempt(draft, members)
        members.counts.attempt = max(members.counts.attempt, attempt)
        members.counts.clear_indexes()
        draft.counts.uncharged_restarts += 1
        role = members.counts.role.name
        draft.restarts.append(f"{f'role {role}' if role else 'the job'} is restarted by a user")
        restarted.add(name)
    return restarted


def give_up_all(draft: PlanDraft, pods: Iterable[JobPod]) -> None:
    """Count pods whose indexes are not needed any more."""
    for pod in pods:
        members = _members(draft, pod)
        members.counts.failed += 1
        members.counts.given_up.add(pod.index)
        draft.counts.charge_in_place(members.counts, pod)
        draft.release(pod)


def count_failed_pods(draft: PlanDraft, failed: Iterable[JobPod]) -> None:
    """Count failures that lead to nothing, because the job has ended or is suspended."""
    for pod in failed:
        _members(draft, pod).counts.failed += 1


def check_in_place(draft: PlanDraft) -> JobEnd | None:
    """Compare restarts by the nodes with the limits."""
    for members in draft.members.roles.values():
        end = _check_indexes_in_place(draft, members)
        if end:
            return end
    limit, most = draft.model.backoff_limit, draft.model.max_restarts
    live = live_in_place_restarts(draft)
    total = draft.counts.restarts + sum(live.values())
    if limit is not None and any(live.values()) and total >= max(limit, 1):
        charge_live_pods(draft)
        return JobEnd(
            succeeded=False,
            reason=JobReason.BACKOFF_LIMIT,
            message=f"its pods were restarted {_times(total)}; the backoff limit is {limit}",
        )
    roles = draft.counts.roles
    by_rule = sum(number for name, number in live.items() if roles[name].by_rule)
    total = draft.counts.restarts_towards_max + by_rule
    if most is None or not by_rule or total <= most:
        return None
    charge_live_pods(draft)
    return JobEnd(
        succeeded=False,
        reason=JobReason.MAX_RESTARTS,
        message=f"its failure policy restarted it {_times(total)}, and the most is {most}",
    )


def report_in_place(draft: PlanDraft, restarts: Mapping[str, int]) -> None:
    """Record that rules had nodes restart containers since the status was written.

    Args:
        draft: of the plan.
        restarts: from ``live_in_place_restarts``.
    """
    before = draft.inputs.status.replica_statuses
    for name, number in restarts.items():
        members = draft.members.roles[name]
        known = before.get(members.counts.role.name)
        if not members.counts.by_rule or number <= (known.in_place_restarts if known else 0):
            continue
        pods = [pod for pod in members.having(PodOutcome.LIVE) if pod.restart_counts]
        listed = first_few([f"{pod.name} ({pod.restart_counts})" for pod in pods], _NAMED)
        role = members.counts.role.name
        message = f"containers of role {role} were restarted in place: {listed}"
        draft.notices.append(JobEvent("Warning", JobReason.RESTARTED_IN_PLACE, message))


def _check_indexes_in_place(draft: PlanDraft, members: RoleMembers) -> JobEnd | None:
    counts = members.counts
    limit = counts.role.backoff_limit_per_index
    if limit is None:
        return None
    for pod in members.having(PodOutcome.LIVE):
        restarts = counts.in_place_restarts(pod)
        if counts.index_restarts.get(pod.index, 0) + restarts <= limit or not restarts:
            continue
        draft.counts.charge_in_place(counts, pod)
        draft.counts.counted.add(pod.uid)
        counts.failed += 1
        members.remove(pod.index, INDEX_FINISHED)
        end = _give_up(draft, members, pod, describe(counts.role, pod, "keeps restarting"))
        if end:
            return end
    return None


def _members(draft: PlanDraft, pod: JobPod) -> RoleMembers:
    return draft.members.roles[pod.role]


def _shrink_elastic(draft: PlanDraft, ordered: list[FailureDecision]) -> list[FailureDecision]:
    """Give up members of elastic roles where nothing but the default would fail the job."""
    spare = {name: members.counts.spare for name, members in draft.members.roles.items()}
    result = []
    for item in ordered:
        shrinks = item.action is FailureAction.FAIL_JOB and item.rule is None
        if shrinks and spare[item.pod.role] > 0:
            spare[item.pod.role] -= 1
            result.append(with_changes(item, action=FailureAction.FAIL_INDEX))
        else:
            result.append(item)
    return result


def _count_failed(draft: PlanDraft, decisions: Iterable[FailureDecision]) -> None:
    for item in decisions:
        _note_failure(draft, item.pod)
        if item.action is not FailureAction.IGNORE:
            _members(draft, item.pod).counts.failed += 1


def _note_failure(draft: PlanDraft, pod: JobPod) -> None:
    """Name the index for its back-off, unless the pod was disrupted."""
    if _members(draft, pod).outcomes[pod.index] is PodOutcome.FAILED:
        draft.ends.add((pod.role, pod.index))


def _handle_job(draft: PlanDraft, decision: FailureDecision) -> JobEnd | None:
    if decision.action is FailureAction.FAIL_JOB:
        reason = JobReason.POD_FAILURE_POLICY if decision.rule else ""
        return JobEnd(succeeded=False, reason=reason, message=_explain(decision))
    if decision.action is FailureAction.RESTART_JOB_UNCHARGED:
        draft.counts.uncharged_restarts += 1
    else:
        end = _exceeded(draft, decision)
        if end:
            return end
        _charge(draft, decision)
    for members in draft.members.roles.values():
        end_attempt(draft, members)
        members.counts.clear_indexes()
    draft.restarts.append(f"all roles are restarted: {_explain(decision)}")
    return None


def _restart_roles(draft: PlanDraft, ordered: list[FailureDecision]) -> JobEnd | None:
    for name, members in draft.members.roles.items():
        of_role = [item for item in ordered if item.pod.role == name]
        first = next((i for i in of_role if i.action is FailureAction.RESTART_ROLE), None)
        if first is None:
            continue
        _count_failed(draft, of_role)
        end = _exceeded(draft, first)
        if end:
            return end
        _charge(draft, first)
        end_attempt(draft, members)
        members.counts.clear_indexes()
        draft.restarts.append(f"role {members.counts.role.name} is restarted: {_explain(first)}")
    return None


def _handle_pods(
    draft: PlanDraft, ordered: list[FailureDecision], uncharged: list[JobPod]
) -> JobEnd | None:
    """Pods of roles that are not restarted as a whole."""
    ordered = [i for i in ordered if i.pod.index in _members(draft, i.pod).current]
    uncharged = [pod for pod in uncharged if pod.index in _members(draft, pod).current]
    if len(ordered) + len(uncharged) > MOST_COUNTED:
        draft.requeue(0.0)
    end: JobEnd | None = None
    for item in ordered[:MOST_COUNTED]:
        _note_failure(draft, item.pod)
        if item.action is FailureAction.IGNORE:
            _replace_uncharged(draft, item.pod, f"{_explain(item)}; it is ignored")
            continue
        _members(draft, item.pod).counts.failed += 1
        if end is None:
            end = _handle_pod(draft, item)
    for pod in uncharged[: MOST_COUNTED - len(ordered[:MOST_COUNTED])]:
        members = _members(draft, pod)
        members.counts.failed += 1
        _replace_uncharged(draft, pod, describe(members.counts.role, pod, "was disrupted"))
    return end


def _handle_pod(draft: PlanDraft, item: FailureDecision) -> JobEnd | None:
    members, pod, role = _members(draft, item.pod), item.pod, item.role
    draft.counts.charge_in_place(members.counts, pod)
    restarts = members.counts.index_restarts.get(pod.index, 0)
    limit = role.backoff_limit_per_index
    if item.action is FailureAction.FAIL_INDEX or (limit is not None and restarts >= limit):
        return _give_up(draft, members, pod, _explain(item))
    end = _exceeded(draft, item)
    if end is None:
        _charge(draft, item)
        draft.counts.counted.add(pod.uid)
        replace(draft, pod)
        draft.restarts.append(_explain(item))
        return None
    if members.counts.spare > 0:
        return _give_up(draft, members, pod, _explain(item))
    return end


def _replace_uncharged(draft: PlanDraft, pod: JobPod, why: str) -> None:
    draft.counts.uncharged_restarts += 1
    draft.counts.charge_in_place(_members(draft, pod).counts, pod)
    draft.counts.counted.add(pod.uid)
    replace(draft, pod)
    draft.restarts.append(why)


def _give_up(draft: PlanDraft, members: RoleMembers, pod: JobPod, why: str) -> JobEnd | None:
    """Let an index go on without a pod; the end of the job where too many have gone."""
    counts = members.counts
    counts.given_up.add(pod.index)
    if pod.index in members.current:
        draft.release(pod)
    message = f"{why}; the index is given up"
    draft.notices.append(JobEvent("Warning", JobReason.FAILED_INDEX, message))
    most = counts.role.max_failed_indexes
    if most is None or len(counts.given_up) <= most:
        return None
    return JobEnd(
        succeeded=False,
        reason=JobReason.MAX_FAILED_INDEXES,
        message=f"{message}, and more than {most} are",
    )


def _exceeded(draft: PlanDraft, decision: FailureDecision) -> JobEnd | None:
    """The end of the job where another charged restart is not allowed."""
    counts, model = draft.counts, draft.model
    most = model.max_restarts
    if decision.by_policy and most is not None and counts.restarts_towards_max >= most:
        text = f"{_explain(decision)}; it was restarted {_times(counts.restarts_towards_max)}"
        return JobEnd(
            succeeded=False,
            reason=JobReason.MAX_RESTARTS,
            message=f"{text}, and the most is {most}",
        )
    limit = model.backoff_limit
    if limit is not None and counts.restarts >= limit:
        text = f"{_explain(decision)}; its pods were restarted {_times(counts.restarts)}"
        return JobEnd(
            succeeded=False,
            reason=JobReason.BACKOFF_LIMIT,
            message=f"{text}; the backoff limit is {limit}",
        )
    return None


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _charge(draft: PlanDraft, item: FailureDecision) -> None:
    counts = _members(draft, item.pod).counts
    draft.counts.charge(counts, item.pod.index, towards_max=item.by_policy)


def _explain(decision: FailureDecision) -> str:
    text = describe(decision.role, decision.pod)
    if decision.rule is None or not decision.rule.name:
        return text
    return f"{text}, rule {decision.rule.name}"
