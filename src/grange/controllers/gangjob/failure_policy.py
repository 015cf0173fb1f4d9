"""What the failure of a pod leads to: rules in order, else the restart policy of its role.

The first rule that matches decides about a failure. Of several failures that concern the whole job
the one with the first rule decides, and of those with the same rule the earliest; it covers the
others. An elastic role gives a member up, as long as enough remain, where the job would fail.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from grange.controllers.gangjob.exit_codes import deciding_code, is_retryable
from grange.controllers.gangjob.model import (
    FailureAction,
    FailureRule,
    JobModel,
    JobPod,
    JobRole,
    RestartPolicy,
)

_SEVERITY = {
    FailureAction.FAIL_JOB: 0,
    FailureAction.RESTART_JOB: 1,
    FailureAction.RESTART_JOB_UNCHARGED: 2,
    FailureAction.RESTART_ROLE: 3,
    FailureAction.FAIL_INDEX: 4,
    FailureAction.RESTART_POD: 5,
    FailureAction.RESTART_POD_IN_PLACE: 6,  # no node did it: the pod is replaced
    FailureAction.IGNORE: 7,
}
OF_JOB = frozenset(
    {
        FailureAction.FAIL_JOB,
        FailureAction.RESTART_JOB,
        FailureAction.RESTART_JOB_UNCHARGED,
    }
)
"""Actions that concern all pods of the job."""


@dataclass(frozen=True, slots=True)
class FailureDecision:
    """What is done about a failed pod.

    Attributes:
        role: of the pod.
        pod: that failed.
        action: to take.
        rule: that decided; None: the role's restart policy, or the default of the job.
        by_policy: the failure policy decided, so that its limit of restarts counts.
    """

    role: JobRole
    pod: JobPod
    action: FailureAction
    rule: FailureRule | None
    by_policy: bool


def decide(model: JobModel, role: JobRole, pod: JobPod) -> FailureDecision:
    """The decision about a pod that failed."""
    for rule in model.failure_rules:
        if matches(rule, role, pod):
            return FailureDecision(role, pod, rule.action, rule, by_policy=True)
    if restarts(role, pod):
        return FailureDecision(role, pod, FailureAction.RESTART_POD, None, by_policy=False)
    return FailureDecision(role, pod, model.default_action, None, by_policy=True)


def decide_disruption(model: JobModel, role: JobRole, pod: JobPod) -> FailureDecision | None:
    """The decision about a pod that was disrupted: only of a rule that is about pod conditions."""
    for rule in model.failure_rules:
        if rule.pod_conditions and matches(rule, role, pod):
            return FailureDecision(role, pod, rule.action, rule, by_policy=True)
    return None


def restarts(role: JobRole, pod: JobPod) -> bool:
    """Whether the restart policy of the role replaces the failed pod."""
    if role.restart_policy is RestartPolicy.EXIT_CODE:
        return is_retryable(deciding_code(role, pod))
    return role.restart_policy in (RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE)


def matches(rule: FailureRule, role: JobRole, pod: JobPod) -> bool:
    """Whether every part that the rule has is true of the pod."""
    if rule.roles and role.name.lower() not in {name.lower() for name in rule.roles}:
        return False
    if rule.reasons and not rule.reasons & pod.reasons:
        return False
    if rule.pod_conditions and not any(
        pod.conditions.get(kind) == status for kind, status in rule.pod_conditions
    ):
        return False
    if rule.exit_codes is None:
        return True
    wanted = rule.exit_codes
    return any(
        code and (code in wanted.values) is not wanted.negated
        for name, code in pod.exit_codes.items()
        if not wanted.container or name == wanted.container
    )


def in_order(
    decisions: Iterable[FailureDecision], rules: tuple[FailureRule, ...], latest: datetime
) -> list[FailureDecision]:
    """The decisions by rule, then by gravity, then by the time of the failure.

    Args:
        decisions: in any order.
        rules: of the job.
        latest: stands for a time that is not known.
    """
    ranks = {id(rule): rank for rank, rule in enumerate(rules)}

    def key(item: FailureDecision) -> tuple[int, int, datetime, str]:
        rank = len(rules) if item.rule is None else ranks[id(item.rule)]
        return (rank, _SEVERITY[item.action], item.pod.finished_at or latest, item.pod.name)

    return sorted(decisions, key=key)


def describe(role: JobRole, pod: JobPod, verb: str = "failed") -> str:
    """Who failed, and how: ``worker 2 (pod train-worker-2) failed with exit code 1 (Error)``."""
    who = f"{role.name} {pod.index} (pod {pod.name})" if role.name else f"pod {pod.name}"
    code = deciding_code(role, pod)
    how = "" if code is None else f" with exit code {code}"
    why = f" ({', '.join(sorted(pod.reasons))})" if pod.reasons else ""
    return f"{who} {verb}{how}{why}" + (f": {pod.message}" if pod.message else "")
