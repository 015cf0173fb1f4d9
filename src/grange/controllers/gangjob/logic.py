"""Decides what a job needs: pure, and deterministic in its inputs.

Theory of operation. A pass counts what ended, lets the success rules and then the failure policy
decide, and compares the pods that there are with those that the roles need. Whatever cannot be
derived from pods again is in the status, which is written before anything that depends on it:

1. A pod that ended is counted in the status; its finalizer is removed afterwards, and only then can
   it be deleted or replaced. A crash in between repeats steps that change nothing.
2. A restart raises the attempt of its roles. Pods of an earlier attempt are deleted, and how they
   end means nothing.
3. A job that is finished is never taken up again; its pods are cleaned up in the passes after the one
   that wrote its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_changes
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from grange.api.job_status import JobStatus
from grange.controllers.gangjob import (
    failure_handling,
    job_cleanup,
    job_counts,
    job_members,
    job_progress,
    pod_counting,
    pod_creation,
    role_dependencies,
    spec_changes,
    success_policy,
)
from grange.controllers.gangjob.job_conditions import JobStatusWriter, is_finished
from grange.controllers.gangjob.job_members import RoleMembers
from grange.controllers.gangjob.job_phase import JobPhase, JobStep
from grange.controllers.gangjob.job_reasons import JobReason
from grange.controllers.gangjob.model import (
    CleanPodPolicy,
    Deletion,
    GangBackend,
    JobInputs,
    JobPlan,
    JobPod,
)
from grange.controllers.gangjob.plan_draft import JobEnd, PlanDraft
from grange.controllers.gangjob.pod_outcomes import PodOutcome

SUSPENDED = "the job is suspended"
_NAMED = 3  # restarts that a message lists
_NONE: Mapping[str, int] = {}


def plan(inputs: JobInputs) -> JobPlan:
    """What to do now."""
    model = inputs.model
    if model.deleting:
        tracked = tuple(pod for pod in inputs.pods if pod.tracked)
        return JobPlan(inputs.status, release=tracked, gang=False)
    inputs = with_changes(inputs, pods=tuple(sorted(inputs.pods, key=attrgetter("name"))))
    counts = job_counts.load(model, inputs.status, inputs.pods)
    draft = PlanDraft(inputs, counts, job_members.assign(counts, inputs.pods, inputs.now))
    writer = JobStatusWriter(inputs.status, model.kind, inputs.now)
    if is_finished(inputs.status):
        return _after_the_end(draft, writer)
    writer.create()
    failed, disrupted = pod_counting.count_ended(draft)
    changed = spec_changes.changed_parts(draft)
    end = _success(draft) or spec_changes.fail_running(draft, changed)
    if end is None and not model.suspend:
        restarted = spec_changes.restart_waiting(draft, changed)
        restarted |= failure_handling.restart_requested(draft)
        failed = [pod for pod in failed if pod.role not in restarted]
        disrupted = [pod for pod in disrupted if pod.role not in restarted]
    if end is None and model.suspend:
        failure_handling.count_failed_pods(draft, failed)
        return _suspended(draft, writer)
    writer.resume()
    writer.start()
    if end is not None:
        failure_handling.count_failed_pods(draft, failed)
    elif success_policy.is_draining(draft):
        failure_handling.give_up_all(draft, [*failed, *disrupted])
        end = _success(draft)
    else:
        end = (
            failure_handling.handle_failures(draft, failed, disrupted)
            or failure_handling.check_in_place(draft)
            or _success(draft)
            or _settled(draft)
        )
    end = end or _deadline(draft, writer.status)
    return _ended(draft, writer, end) if end else _at_work(draft, writer)


def reject(inputs: JobInputs, message: str) -> JobPlan:
    """The plan for a job whose spec cannot be acted on: it fails, if it has not ended before.

    Pods at work are deleted, as by default; how many indexes are complete stays in the status.

    Args:
        inputs: with a model that names the job and has no roles.
        message: why, for people.
    """
    model, now = inputs.model, inputs.now
    tracked = tuple(pod for pod in inputs.pods if pod.tracked)
    if model.deleting:
        return JobPlan(inputs.status, release=tracked, gang=False)
    writer = JobStatusWriter(inputs.status, model.kind, now)
    ended = is_finished(inputs.status)
    if not ended:
        writer.create()
        writer.finish(JobStep.FAIL, JobReason.INVALID, message)
    status = replace(
        writer.status,
        observed_generation=model.generation,
        replica_statuses={
            name: replace(item, active=0, pending=0, ready=0, in_place_restarts=0)
            for name, item in inputs.status.replica_statuses.items()
        },
    )
    if not ended:
        return JobPlan(status, events=tuple(writer.events), requeue_s=0.0)
    kept, going = job_cleanup.divide(inputs.pods, model.clean_pod_policy, status, now)
    return JobPlan(
        status,
        delete=tuple(Deletion(pod, job_cleanup.CLEANED_UP) for pod in going if not pod.deleting),
        release=tracked,
        gang=False,
        delete_services=tuple(sorted(inputs.services - job_cleanup.kept_services(model, kept))),
    )


def _success(draft: PlanDraft) -> JobEnd | None:
    rule = success_policy.met(draft)
    if rule is None:
        return None
    message = success_policy.describe(draft, rule)
    return JobEnd(succeeded=True, reason=rule.reason, message=message)


def _settled(draft: PlanDraft) -> JobEnd | None:
    if not success_policy.is_settled(draft):
        return None
    lost = {
        item.role.name: sorted(item.given_up)
        for item in draft.counts.roles.values()
        if item.given_up
    }
    if not lost:
        return JobEnd(succeeded=True, reason="", message="all indexes are complete")
    text = "; ".join(
        f"{name}: {len(indexes)}" if name else f"{len(indexes)}" for name, indexes in lost.items()
    )
    waiting = [
        item.counts.role.name
        for item in draft.members.roles.values()
        if role_dependencies.never_starts(draft, item)
    ]
    if waiting:
        text += f"; what waits for them never starts: {', '.join(waiting)}"
    return JobEnd(
        succeeded=False,
        reason=JobReason.FAILED_INDEXES,
        message=f"all indexes have ended, and some are given up ({text})",
    )


def _deadline(draft: PlanDraft, status: JobStatus) -> JobEnd | None:
    left = job_cleanup.deadline_in(draft.inputs, status)
    if left is None:
        return None
    if left > 0:
        draft.requeue(left)
        return None
    return JobEnd(
        succeeded=False,
        reason=JobReason.DEADLINE,
        message=f"it was active longer than {draft.model.active_deadline_s} s",
    )


def _at_work(draft: PlanDraft, writer: JobStatusWriter) -> JobPlan:
    pod_creation.plan_pods(draft)
    active = draft.active_pods()
    _take_steps(draft, writer, {name: len(pods) for name, pods in active.items()})
    wanted = job_cleanup.wanted_services(draft.model)
    present = draft.inputs.services
    in_place = pod_counting.live_in_place_restarts(draft)
    failure_handling.report_in_place(draft, in_place)
    return _plan(
        draft,
        writer,
        in_place=in_place,
        gang=draft.model.scheduling.backend is not GangBackend.NONE,
        create_services=tuple(name for name in wanted if name not in present),
        delete_services=tuple(sorted(present.difference(wanted))),
    )


def _take_steps(draft: PlanDraft, writer: JobStatusWriter, active: Mapping[str, int]) -> None:
    """Lead the phase to what the pods show."""
    gang, backend = draft.inputs.gang, draft.model.scheduling.backend
    waits = not gang.admitted or bool(gang.reason and not gang.scheduled)
    if backend is not GangBackend.NONE and waits and not any(active.values()):
        writer.wait(gang.reason, gang.message or "its gang is not admitted yet")
    else:
        writer.admit()
    deciding = success_policy.deciding_roles(draft.model)
    runs = any(active[role.name.lower()] for role in deciding)
    lost = [
        f"no pod{_of_role(members)} runs any more"
        for name, members in draft.members.roles.items()
        if _has_lost_all(draft, name, active[name])
    ]
    if draft.restarts or (lost and writer.phase is JobPhase.RUNNING):
        writer.restart(_listed(draft.restarts or lost))
    elif runs and (writer.phase is not JobPhase.RESTARTING or _is_whole(draft, active)):
        writer.run()


def _of_role(members: RoleMembers) -> str:
    """The only role of a Job has no name."""
    role = members.counts.role.name
    return f" of role {role}" if role else ""


def _has_lost_all(draft: PlanDraft, name: str, active: int) -> bool:
    """Whether the pods of a role are gone without one that ended."""
    members = draft.members.roles[name]
    before = draft.inputs.status.replica_statuses.get(members.counts.role.name)
    if active or before is None or not before.active or name in draft.completions:
        return False
    return pod_creation.needed(draft, members) > 0


def _is_whole(draft: PlanDraft, active: Mapping[str, int]) -> bool:
    return all(
        active[name] >= pod_creation.needed(draft, members)
        for name, members in draft.members.roles.items()
    )


def _listed(texts: Sequence[str]) -> str:
    more = f" (and {len(texts) - _NAMED} more)" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more


def _suspended(draft: PlanDraft, writer: JobStatusWriter) -> JobPlan:
    """No pods, no Services, no gang; what is complete stays complete."""
    if draft.inputs.status.start_time:
        # The pods that stop now belong to an attempt that is over, also after the job is resumed.
        for members in draft.members.roles.values():
            pod_counting.end_attempt(draft, members)
    for pod in draft.inputs.pods:
        draft.delete(pod, SUSPENDED)
    writer.suspend()
    services = tuple(sorted(draft.inputs.services))
    return _plan(draft, writer, gang=False, delete_services=services)


def _ended(draft: PlanDraft, writer: JobStatusWriter, end: JobEnd) -> JobPlan:
    """Write the end; pods and everything else are cleaned up by the next pass."""
    step = JobStep.SUCCEED if end.succeeded else JobStep.FAIL
    writer.finish(step, end.reason, end.message)
    draft.counts.counted.clear()  # nothing is charged any more
    draft.deletions.clear()
    draft.requeue(0.0)
    model, status = draft.model, writer.status
    _, going = job_cleanup.divide(
        draft.inputs.pods, model.clean_pod_policy, status, draft.inputs.now
    )
    draft.leaving = {pod.uid for pod in going}
    return _plan(draft, writer, gang=None)


def _after_the_end(draft: PlanDraft, writer: JobStatusWriter) -> JobPlan:
    model, now = draft.model, draft.inputs.now
    writer.repair_end()
    for members in draft.members.roles.values():
        ended = {pod.index for pod in members.having(PodOutcome.COMPLETE)}
        members.counts.completed |= ended - members.counts.given_up
    draft.counts.counted.clear()
    draft.release(*draft.inputs.pods)
    kept, going = job_cleanup.divide(draft.inputs.pods, model.clean_pod_policy, writer.status, now)
    for pod in going:
        draft.delete(pod, job_cleanup.CLEANED_UP)
    left = job_cleanup.time_to_live(model, writer.status, now)
    if left is not None and left > 0:
        draft.requeue(left)
    return _plan(
        draft,
        writer,
        gang=False,
        delete_services=tuple(
            sorted(draft.inputs.services - job_cleanup.kept_services(model, kept))
        ),
        delete_job=left is not None and left <= 0,
    )


def _plan(
    draft: PlanDraft,
    writer: JobStatusWriter,
    *,
    in_place: Mapping[str, int] = _NONE,
    **parts: Any,
) -> JobPlan:
    active = draft.active_pods()
    gang = draft.inputs.gang
    shown, again_s = job_progress.progress(
        None if draft.restarts else writer.status.progress,  # what runs again starts over
        draft.reporting_pods(),
        draft.inputs.now,
        ended=writer.phase.value if is_finished(writer.status) else "",
    )
    if again_s is not None:
        draft.requeue(again_s)
    status = replace(
        job_counts.write(
            writer.status,
            draft.counts,
            active={name: len(pods) for name, pods in active.items()},
            pending=draft.pending_pods() if draft.model.counts_pending else _NONE,
            ready={name: sum(pod.ready for pod in pods) for name, pods in active.items()},
            in_place=in_place,
        ),
        observed_generation=draft.model.generation,
        pod_group=gang.name if gang.exists else "",
        queue=draft.model.scheduling.queue,
        quota_used=dict(gang.used) if gang.exists else {},
        progress=shown,
        spec_digests=dict(draft.model.spec_digests),
    )
    return JobPlan(
        status,
        delete=tuple(draft.deletions.values()),
        release=_released(draft),
        create=tuple(draft.creations),
        events=(*draft.notices, *writer.events),
        requeue_s=draft.requeue_s,
        ends=frozenset(draft.ends),
        first_counted=tuple(draft.first_counted.values()),
        **parts,
    )


def _released(draft: PlanDraft) -> tuple[JobPod, ...]:
    """The pods to let go of now.

    Where the clean-up takes all pods, one that is not being deleted waits for that: its finalizer and
    the pod then go in one write.
    """
    waits = draft.model.clean_pod_policy is CleanPodPolicy.ALL
    return tuple(
        pod
        for pod in draft.releases.values()
        if not waits or pod.deleting or pod.uid in draft.deletions
    )
