"""Changes of a spec that the server let through though the job runs: a server without our rules.

The digests in the status are those of the spec that the last pass acted on.
"""

from grange.base.first_few import first_few
from grange.controllers.gangjob.job_reasons import JobReason
from grange.controllers.gangjob.plan_draft import JobEnd, PlanDraft
from grange.controllers.gangjob.pod_counting import end_attempt

_NAMED = 3  # parts that a message lists


def changed_parts(draft: PlanDraft) -> list[str]:
    """The paths of the parts that may change only while the job is stopped, and did since the last pass.

    Where the generation is the same nothing was changed: another release may compute other digests.
    """
    status, model = draft.inputs.status, draft.model
    if model.generation == status.observed_generation or model.suspend:
        return []
    was, now = status.spec_digests, model.spec_digests
    if not was or not now:
        return []
    return sorted(path for path in {*was, *now} if was.get(path) != now.get(path))


def fail_running(draft: PlanDraft, changed: list[str]) -> JobEnd | None:
    """The end of a job with pods that run, of which parts of the spec were changed."""
    statuses = draft.inputs.status.replica_statuses.values()
    if not changed or not any(item.active for item in statuses):
        return None
    message = f"{first_few(changed, _NAMED)}: may not change while the job runs; create another job"
    return JobEnd(succeeded=False, reason=JobReason.INVALID, message=message)


def restart_waiting(draft: PlanDraft, changed: list[str]) -> set[str]:
    """Replace pods that wait with another spec than the job's: it was changed while none of them ran.

    Returns:
        The roles, in lower case. How the pods of their earlier attempt ended means nothing.
    """
    waiting = {name for name, members in draft.members.roles.items() if members.current}
    if not changed or not waiting:
        return set()
    for name, members in draft.members.roles.items():
        if name in waiting:
            end_attempt(draft, members)
    draft.counts.uncharged_restarts += 1
    draft.restarts.append(f"pods are replaced, because of changes: {', '.join(changed[:_NAMED])}")
    return waiting
