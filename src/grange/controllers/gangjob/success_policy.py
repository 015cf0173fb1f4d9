"""When a job has succeeded, and when it cannot any more."""

from grange.controllers.gangjob import role_dependencies
from grange.controllers.gangjob.job_counts import RoleCounts
from grange.controllers.gangjob.job_members import RoleMembers
from grange.controllers.gangjob.model import JobModel, JobRole, SuccessRule
from grange.controllers.gangjob.plan_draft import PlanDraft


def target_roles(model: JobModel, rule: SuccessRule) -> tuple[JobRole, ...]:
    """The roles that the rule is about; where the job has none of them, those that decide it."""
    wanted = {name.lower() for name in rule.roles}
    found = tuple(role for role in model.roles if role.name.lower() in wanted and role.replicas)
    return found or deciding_roles(model)


def deciding_roles(model: JobModel) -> tuple[JobRole, ...]:
    """The leader, else the roles that complete, else all."""
    leaders = tuple(role for role in model.roles if role.leader and role.replicas)
    completing = tuple(role for role in model.roles if role.completes and role.replicas)
    return leaders or completing or model.roles


def met(draft: PlanDraft) -> SuccessRule | None:
    """The first rule that is met."""
    for rule in draft.model.success:
        if is_complete(draft, rule) and not (rule.drain and _any_at_work(draft, rule)):
            return rule
    return None


def describe(draft: PlanDraft, rule: SuccessRule) -> str:
    """What is complete: ``3 of 4 indexes of worker are complete``."""
    parts = [
        f"{len(counts.completed)} of {counts.role.replicas} indexes"
        + (f" of {counts.role.name}" if counts.role.name else "")
        for counts in _targets(draft, rule)
    ]
    return f"{', '.join(parts)} are complete"


def is_draining(draft: PlanDraft) -> bool:
    """Whether the job waits for its last pods only, and replaces none."""
    return any(rule.drain and is_complete(draft, rule) for rule in draft.model.success)


def is_complete(draft: PlanDraft, rule: SuccessRule) -> bool:
    """Whether enough of the indexes that the rule is about are complete."""
    complete = wanted = 0
    for counts in _targets(draft, rule):
        indexes = rule.indexes
        given_up = counts.given_up if counts.role.min_replicas is not None else set()
        if indexes is None:
            complete += len(counts.completed)
            wanted += counts.role.replicas - len(given_up)
        else:
            complete += len(indexes & counts.completed)
            wanted += sum(i < counts.role.replicas and i not in given_up for i in indexes)
    if rule.count is not None:
        return complete >= rule.count
    if not wanted:
        return sum(role.replicas for role in draft.model.roles) == 0
    return complete >= (1 if rule.any_of else wanted)


def is_settled(draft: PlanDraft) -> bool:
    """Whether no index that a rule is about has anything left to do, or none can begin any more."""
    return all(
        members.counts.finished >= members.counts.role.replicas
        or role_dependencies.never_starts(draft, members)
        for rule in draft.model.success
        for members in _members(draft, rule)
    )


def _targets(draft: PlanDraft, rule: SuccessRule) -> list[RoleCounts]:
    return [members.counts for members in _members(draft, rule)]


def _members(draft: PlanDraft, rule: SuccessRule) -> list[RoleMembers]:
    return [draft.members.roles[role.name.lower()] for role in target_roles(draft.model, rule)]


def _any_at_work(draft: PlanDraft, rule: SuccessRule) -> bool:
    return any(
        index not in role.counts.completed and index not in role.counts.given_up
        for role in _members(draft, rule)
        for index in role.current
    )
