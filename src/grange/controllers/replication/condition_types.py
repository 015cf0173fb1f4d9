"""The conditions of a ReplicationController: their types, the reasons that each can have, and which alert.

Every condition is always present. Conditions that are true in an abnormal state (``InsufficientNodes``,
``Misplaced``, ``Paused``, …) are named after it, so that ``kubectl wait`` can wait for either status.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from grange.alerts.alerts import HIGH, LOW
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition
from grange.controllers.shared import audit_records
from grange.controllers.shared.event_reasons import INVALID_ANNOTATION, Reason
from grange.reconcile.condition_alerts import ConditionAlert


class ConditionReason(NamedTuple):
    """One reason of a condition.

    Attributes:
        status: of the condition.
        meaning: for users.
        is_skip: something is left undone for this reason, which a metric counts.
        urgency: of the alert while the condition is true for this reason; empty for none.
    """

    status: str
    meaning: str
    is_skip: bool = False
    urgency: str = ""


def _skip(status: str, meaning: str, urgency: str = "") -> ConditionReason:
    return ConditionReason(status, meaning, is_skip=True, urgency=urgency)


@dataclass(frozen=True, slots=True)
class ConditionType:
    """One condition.

    Attributes:
        meaning: what it means while it is true.
        reasons: by name.
    """

    meaning: str
    reasons: Mapping[str, ConditionReason]


_NODES_UNKNOWN = ConditionReason("Unknown", "it is not known which nodes may be used")

CONDITIONS: Mapping[str, ConditionType] = {
    "Available": ConditionType(
        "as many pods as `maxUnavailable` requires are available",
        {
            "MinimumReplicasAvailable": ConditionReason("True", "the minimum is available"),
            "MinimumReplicasUnavailable": ConditionReason("False", "fewer pods are available"),
        },
    ),
    "Reconciled": ConditionType(
        "the pods are what `spec` asks for",
        {
            "ReplicasReady": ConditionReason("True", "as many pods as wanted exist"),
            "Scaling": ConditionReason("False", "pods are created or deleted"),
            "RollingOut": ConditionReason("False", "pods are replaced for another template"),
            "Repairing": ConditionReason("False", "labels of pods are put back"),
            "Outdated": ConditionReason("False", "pods are made from another template"),
            "InsufficientNodes": ConditionReason("False", "replicas have no eligible node"),
            "DisruptionBudget": _skip(
                "False", "pods stay because the minimum or a PodDisruptionBudget needs them"
            ),
            "CrashLoopBackOff": _skip(
                "False", "pods ended several times and are replaced after a delay"
            ),
            "Paused": _skip("False", "`spec.paused` is true"),
            "RolledBack": _skip("False", "`spec.template` failed and was rolled back"),
            "NodesUnknown": _skip("False", _NODES_UNKNOWN.meaning),
            "WriteFailed": _skip("False", "the server refused a write"),
            "DeletionsHeld": _skip(
                "False",
                "the [deletion guard](../explanation/farm.md#the-deletion-guard) holds deletions",
            ),
            INVALID_ANNOTATION: _skip(
                "False", "an annotation with an operation is malformed (edited by a user)"
            ),
            Reason.INVALID.value: _skip("False", "the spec cannot be acted on"),
        },
    ),
    "InsufficientNodes": ConditionType(
        "replicas have no eligible node; the message counts the nodes by obstacle",
        {
            "NotEnoughEligibleNodes": _skip("True", "too few nodes are eligible", LOW),
            "EnoughEligibleNodes": ConditionReason("False", "every replica has a node"),
            "Paused": ConditionReason("False", "not evaluated while `spec.paused` is true"),
            "NodesUnknown": _NODES_UNKNOWN,
        },
    ),
    "Misplaced": ConditionType(
        "pods are bound to nodes that are not eligible",
        {
            "Transferring": ConditionReason("True", "pods move to other nodes"),
            "Static": _skip("True", "they stay: `spec.strategy` is `Static`", LOW),
            "Locked": _skip("True", "a user has locked transfers"),
            "BackingOff": _skip("True", "a transfer failed and is tried again later", LOW),
            "DisruptionBudget": _skip("True", "as many transfers as allowed are under way"),
            "AllocationRefused": _skip("True", "no further nodes are available", LOW),
            "AllocationFailed": _skip("True", "the machine pool failed", LOW),
            "ReleaseFailed": _skip("True", "a machine could not be released", LOW),
            "AllOnEligibleNodes": ConditionReason(
                "False", "every bound pod is on an eligible node"
            ),
            "NodesUnknown": _NODES_UNKNOWN,
        },
    ),
    "Paused": ConditionType(
        "nothing is created, deleted or repaired",
        {
            "SpecPaused": ConditionReason("True", "`spec.paused` is true"),
            "NotPaused": ConditionReason("False", "`spec.paused` is false"),
        },
    ),
    "Progressing": ConditionType(
        "the rollout of `spec.template` advances or is complete",
        {
            "RollingOut": ConditionReason("True", "pods are replaced"),
            "RolloutWaiting": ConditionReason(
                "True", "it waits at its canary, or with `OnDelete` for pods to be deleted"
            ),
            "RolloutComplete": ConditionReason("True", "every pod is made from the template"),
            "RolloutPaused": ConditionReason("Unknown", "`spec.rollout.paused` is true"),
            "ProgressDeadlineExceeded": ConditionReason("False", "no progress within the deadline"),
            "RollingBack": ConditionReason("True", "pods go back to the last good template"),
            "RolledBack": ConditionReason("False", "pods are back at the last good template"),
        },
    ),
    "RolloutFailed": ConditionType(
        "the rollout failed, until `spec.template` changes",
        {
            "ProgressDeadlineExceeded": ConditionReason(
                "True", "no progress within the deadline", urgency=HIGH
            ),
            "RollingBack": ConditionReason("True", "it failed, and pods go back", urgency=HIGH),
            "RolledBack": ConditionReason("True", "it failed, and pods are back", urgency=HIGH),
            "NotFailed": ConditionReason("False", "no rollout of this template has failed"),
        },
    ),
    audit_records.CONDITION: ConditionType(
        "the server refuses audit records; the message names the first",
        {
            "AuditWriteFailed": ConditionReason("True", "records are missing", urgency=LOW),
            "NothingRefused": ConditionReason("False", "the server accepts records"),
        },
    ),
}
"""By type, in the order in which they are written."""

ALERT_AFTER_S: Mapping[str, float] = {"InsufficientNodes": 10.0}
"""Seconds that a condition must last before it alerts: nodes become Ready after controllers start."""


def reason_of(condition: Condition) -> ConditionReason | None:
    """What is known of the reason of a condition; None where the status is not the reason's."""
    kind = CONDITIONS.get(condition.type)
    known = None if kind is None else kind.reasons.get(condition.reason)
    return known if known is not None and known.status == condition.status else None


def alerts_of(
    controller: ReplicationController, *, after_s: Mapping[str, float] = ALERT_AFTER_S
) -> Iterator[ConditionAlert]:
    """The conditions of a controller that need an operator.

    An alert is named after the condition, and for Misplaced after its reason: a machine that cannot be released is
    another alert than one that cannot be allocated.
    """
    for condition in controller.status.conditions:
        known = reason_of(condition)
        if known is not None and known.urgency:
            reason = condition.reason if condition.type == "Misplaced" else condition.type
            yield ConditionAlert(reason, known.urgency, condition, after_s.get(reason, 0.0))
