"""Conditions of ReplicationControllers and RollingUpdates that need an operator. Pure."""

from collections.abc import Iterator, Mapping

from grange.alerts.alerts import HIGH, LOW
from grange.api import conditions
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import RollingUpdate
from grange.controllers.shared import audit_records
from grange.controllers.shared.rollout_phase import RolloutPhase
from grange.reconcile.condition_alerts import ConditionAlert

URGENCY: Mapping[str, str] = {
    "InsufficientNodes": LOW,
    "RolloutFailed": HIGH,
    audit_records.CONDITION: LOW,
}
"""Conditions that alert while they are true; the alert has the condition's type as reason."""

MISPLACED: Mapping[str, str] = {
    "Static": LOW,
    "BackingOff": LOW,
    "AllocationRefused": LOW,
    "AllocationFailed": LOW,
    "ReleaseFailed": LOW,
}
"""Reasons of the condition Misplaced that alert; a transfer in progress does not.

The alert has the same reason: a machine that cannot be released is another alert than one that cannot
be allocated.
"""

AFTER_S: Mapping[str, float] = {"InsufficientNodes": 10.0}
"""Seconds that a condition must last: nodes become Ready after controllers start."""

FAILED = "RolloutFailed"
"""The condition of a rollout between two controllers that does not go on as requested."""

ROLLOUTS: Mapping[RolloutPhase, tuple[str, str]] = {
    RolloutPhase.FAILED: (FAILED, HIGH),
    RolloutPhase.ROLLING_BACK: (FAILED, HIGH),
    RolloutPhase.ROLLED_BACK: (FAILED, HIGH),
    RolloutPhase.REFUSED: ("RolloutRefused", LOW),
}
"""Reason and urgency of the alert, by the condition's reason.

A refused rollout moved nothing, but what was requested will not be done. One that rolls back by policy
alerts because its failure was never acknowledged; one that a user undoes does not.
"""


def of_controller(
    controller: ReplicationController, *, after_s: Mapping[str, float] = AFTER_S
) -> Iterator[ConditionAlert]:
    """The conditions of a controller that need an operator."""
    for condition in controller.status.conditions:
        if condition.status != "True":
            continue
        reason, urgency = condition.type, URGENCY.get(condition.type)
        if condition.type == "Misplaced":
            reason, urgency = condition.reason, MISPLACED.get(condition.reason)
        if urgency is not None:
            yield ConditionAlert(reason, urgency, condition, after_s.get(reason, 0.0))


def of_rollout(update: RollingUpdate) -> Iterator[ConditionAlert]:
    """The conditions of a rollout between two controllers that need an operator."""
    failed = conditions.find(update.status.conditions, FAILED)
    if failed is not None and failed.status == "True":
        phase = next((phase for phase in ROLLOUTS if phase.value == failed.reason), None)
        undone = update.spec.undo and phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}
        if phase is not None and not undone:
            reason, urgency = ROLLOUTS[phase]
            yield ConditionAlert(reason, urgency, failed)
    refused = conditions.find(update.status.conditions, audit_records.CONDITION)
    if refused is not None and refused.status == "True":
        yield ConditionAlert(audit_records.CONDITION, LOW, refused)
