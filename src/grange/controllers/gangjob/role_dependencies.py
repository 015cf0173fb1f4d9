"""Roles that wait for other roles: whether they may start, and whether they never can."""

from grange.controllers.gangjob.job_members import RoleMembers
from grange.controllers.gangjob.model import Await, RoleDependency
from grange.controllers.gangjob.plan_draft import PlanDraft
from grange.controllers.gangjob.pod_outcomes import PodOutcome


def are_met(draft: PlanDraft, members: RoleMembers) -> bool:
    """Whether the roles that this one waits for are Ready or Complete."""
    return all(_is_met(draft, item) for item in members.counts.role.depends_on)


def never_starts(draft: PlanDraft, members: RoleMembers) -> bool:
    """Whether a role waits for one that has ended otherwise, or that never starts itself.

    Dependencies have no circles: a job that has one is refused.
    """
    if members.started:
        return False
    return any(_is_never_met(draft, item) for item in members.counts.role.depends_on)


def _is_met(draft: PlanDraft, dependency: RoleDependency) -> bool:
    other = draft.members.roles.get(dependency.role.lower())
    if other is None:
        return False
    counts = other.counts
    elastic = counts.role.min_replicas
    if dependency.condition is Await.COMPLETE:
        given_up = len(counts.given_up) if elastic is not None else 0
        return len(counts.completed) + given_up >= counts.role.replicas
    ready = sum(pod.ready for pod in other.having(PodOutcome.LIVE)) + len(counts.completed)
    return ready >= (counts.role.replicas if elastic is None else elastic)


def _is_never_met(draft: PlanDraft, dependency: RoleDependency) -> bool:
    other = draft.members.roles.get(dependency.role.lower())
    if other is None or _is_met(draft, dependency):
        return False
    counts = other.counts
    if dependency.condition is Await.READY and counts.given_up and counts.role.min_replicas is None:
        return True  # an index that is given up gets no pod, so not all of them become ready
    return other.counts.finished >= other.counts.role.replicas or never_starts(draft, other)
