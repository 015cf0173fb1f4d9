"""What a controller says about itself: counts and conditions, as a table of rules.

Every condition is always there. Abnormal-is-true conditions (``InsufficientNodes``, ``Misplaced``, ``Paused``, …)
are named after the abnormality, so that ``kubectl wait`` can wait for either state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from grange.api import conditions
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import (
    ReplicationController,
    ReplicationControllerStatus,
    selector_of,
)
from grange.api.kinds.transfer_status import PendingDeletion
from grange.api.meta import Condition, Document, preconditions
from grange.controllers.replication import budget, node_transfer
from grange.controllers.replication.inputs import Inputs
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Plan
from grange.controllers.shared import audit_records, availability, pod_identity
from grange.controllers.shared.availability import Readiness
from grange.controllers.shared.event_reasons import INVALID_ANNOTATION, Reason
from grange.controllers.shared.rollout_phase import RolloutPhase

Verdict = tuple[str, str, str]
"""status ("True", "False"), reason, message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass saw and did.

    Attributes:
        controller: as the cache has it.
        active: its active pods before the pass.
        available: how many of them are ready for at least ``minReadySeconds``.
        ready: how many of them are ready.
        updated: how many of them are made from ``spec.template``.
        plan: what the pass decided.
        failure: the first error while carrying it out; empty for none.
        cause: the reason that the condition names for it.
        next_available_s: seconds until the next ready pod counts as available; None for none.
        moves: what became of its node transfers; None when they were not looked at.
        minimum: how many shall be available at any time.
        rolling: whether pods are being replaced for another template.
        lacking: what the audit lacks because the server refused it, in words; empty for nothing.
        unreadable: which of its orders somebody's hand spoiled, in words; empty for none.
        pending: deletions whose outcome is not certain.
        shortage: why replicas have no eligible node, in words.
    """

    controller: ReplicationController
    active: tuple[Pod, ...]
    available: int
    ready: int
    updated: int
    plan: Plan
    failure: str = ""
    cause: str = "WriteFailed"
    next_available_s: float | None = None
    moves: TransferResult | None = None
    minimum: int = 0
    rolling: bool = False
    lacking: str = ""
    unreadable: str = ""
    pending: tuple[PendingDeletion, ...] = ()
    shortage: str = ""

    @property
    def replicas(self) -> int:
        """How many pods are wanted."""
        return max(0, self.controller.spec.replicas)

    @property
    def phase(self) -> RolloutPhase:
        """Where the rollout of the template is."""
        state = self.controller.status.rollout
        return RolloutPhase.PROGRESSING if state is None else RolloutPhase(state.phase)


def observe(
    inputs: Inputs,
    plan: Plan,
    *,
    now: datetime,
    failure: str = "",
    cause: str = "WriteFailed",
    moves: TransferResult | None = None,
    readiness: Readiness | None = None,
) -> Outcome:
    """Count the pods."""
    controller, state = inputs.controller, inputs.controller.status.rollout
    active = tuple(pod for pod in inputs.owned if pods.is_active(pod))
    seen = availability.observe(controller, active, inputs.down, now, readiness)
    wanted = pod_identity.template_hash(controller) if state is None else state.spec_hash
    return Outcome(
        controller=controller,
        active=active,
        available=len(seen.available),
        ready=seen.ready,
        updated=sum(pod_identity.is_of(pod, wanted) for pod in active),
        plan=plan,
        failure=failure,
        cause=cause,
        next_available_s=seen.next_available_s,
        moves=moves,
        minimum=budget.limits(controller).minimum,
        rolling=inputs.sides is not None,
    )


def _of(have: int, wanted: int, *, one: str, more: str) -> str:
    """So many of those wanted; there can be more, while some are on their way out."""
    if have <= wanted:
        return f"{have} of {wanted} replicas {more}"
    return f"{have} {f'replica {one}' if have == 1 else f'replicas {more}'}, {wanted} wanted"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _available(outcome: Outcome) -> Verdict:
    message = _of(outcome.available, outcome.replicas, one="is available", more="are available")
    if outcome.available >= outcome.minimum:
        return "True", "MinimumReplicasAvailable", message
    return "False", "MinimumReplicasUnavailable", message


def _reconciled(outcome: Outcome) -> Verdict:
    wanted, have = outcome.replicas, len(outcome.active)
    if outcome.failure or outcome.unreadable:
        return _in_trouble(outcome)
    if outcome.controller.spec.paused:
        return "False", "Paused", "neither scaled nor repaired while spec.paused is true"
    if outcome.plan.short:
        return "False", "InsufficientNodes", _shortage(outcome)
    if outcome.rolling and not outcome.plan.budget:
        return "False", "RollingOut", f"{outcome.updated} of {wanted} replicas are updated"
    if (waits := _waits(outcome)) is not None:
        return waits
    if outcome.plan.repair:
        return "False", "Repairing", f"labels of {_pods(len(outcome.plan.repair))} are put back"
    if outcome.updated < have:
        return _outdated(outcome)
    return "True", "ReplicasReady", f"{wanted} replicas exist"


def _in_trouble(outcome: Outcome) -> Verdict:
    if outcome.failure:
        return "False", outcome.cause, outcome.failure
    return "False", INVALID_ANNOTATION, outcome.unreadable  # nothing but a person ends it


def _waits(outcome: Outcome) -> Verdict | None:
    """Why there are not so many pods as wanted; None when there are."""
    plan, wanted, have = outcome.plan, outcome.replicas, len(outcome.active)
    if plan.kept:
        verb = "stays" if plan.kept == 1 else "stay"
        needed = f"{outcome.minimum} must be available"
        if plan.budget:
            needed = f"PodDisruptionBudget {plan.budget} allows no more"
        message = f"{_pods(plan.kept)} {verb} for now: {needed}"
        return "False", "DisruptionBudget", message
    if plan.held:
        message = f"{_pods(plan.held)} ended again and again: replaced after a while"
        return "False", "CrashLoopBackOff", message
    if plan.scaling or have != wanted:
        return "False", "Scaling", _of(have, wanted, one="exists", more="exist")
    return None


def _outdated(outcome: Outcome) -> Verdict:
    count = len(outcome.active) - outcome.updated
    if outcome.phase is RolloutPhase.ROLLED_BACK:
        return "False", "RolledBack", _message(outcome) + "; change spec.template to try again"
    message = f"{count} pods are made from another template"
    if outcome.controller.spec.rollout.type != "RollingUpdate":
        message += "; delete a pod to have it made anew"
    return "False", "Outdated", message


def _message(outcome: Outcome) -> str:
    state = outcome.controller.status.rollout
    return "" if state is None else state.message


def _progressing(outcome: Outcome) -> Verdict:
    state, wanted = outcome.controller.status.rollout, outcome.replicas
    revision = 0 if state is None else state.revision
    count = f"revision {revision}: {outcome.updated} of {wanted} replicas are updated"
    verdicts: dict[RolloutPhase, Verdict] = {
        RolloutPhase.PAUSED: ("Unknown", "RolloutPaused", count),
        RolloutPhase.WAITING: ("True", "RolloutWaiting", count),
        RolloutPhase.COMPLETE: ("True", "RolloutComplete", f"revision {revision} is rolled out"),
        RolloutPhase.FAILED: ("False", "ProgressDeadlineExceeded", _message(outcome)),
        RolloutPhase.ROLLING_BACK: ("True", "RollingBack", _message(outcome)),
        RolloutPhase.ROLLED_BACK: ("False", "RolledBack", _message(outcome)),
    }
    return verdicts.get(outcome.phase, ("True", "RollingOut", count))


def _rollout_failed(outcome: Outcome) -> Verdict:
    if outcome.phase is RolloutPhase.FAILED:
        return "True", "ProgressDeadlineExceeded", _message(outcome)
    if outcome.phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}:
        return "True", outcome.phase.value, _message(outcome)
    return "False", "NotFailed", "no rollout has failed since spec.template changed"


def _shortage(outcome: Outcome) -> str:
    wanted = outcome.replicas
    why = f": {outcome.shortage}" if outcome.shortage else ""
    if outcome.controller.spec.placement == "Packed":
        return f"no node is eligible for the {wanted} replicas{why}"
    return f"{outcome.plan.short} of {wanted} replicas have no eligible node{why}"


def _is_blind(outcome: Outcome) -> bool:
    return outcome.moves is not None and not outcome.moves.known


def _unjudged(outcome: Outcome, kind: str) -> Verdict:
    """What was said last, by whoever knew: a trouble is not over because nobody can see it."""
    said = conditions.find(outcome.controller.status.conditions, kind)
    if said is None:
        return "Unknown", "NodesUnknown", "nobody knows which nodes may be used"
    return said.status, said.reason, said.message


def _insufficient(outcome: Outcome) -> Verdict:
    if _is_blind(outcome):
        return _unjudged(outcome, "InsufficientNodes")
    if outcome.plan.short:
        return "True", "NotEnoughEligibleNodes", _shortage(outcome)
    if outcome.controller.spec.paused:
        return "False", "Paused", "not judged while spec.paused is true"
    return "False", "EnoughEligibleNodes", "every replica has an eligible node"


def _paused(outcome: Outcome) -> Verdict:
    if outcome.controller.spec.paused:
        return "True", "SpecPaused", "spec.paused is true"
    return "False", "NotPaused", "spec.paused is false"


def _misplaced(outcome: Outcome) -> Verdict:
    """One reason of several: what a person must hear of comes before what goes on by itself."""
    if _is_blind(outcome):
        return _unjudged(outcome, "Misplaced")
    moves = outcome.moves
    if moves is None:
        return "False", "AllOnEligibleNodes", "every bound pod is on an eligible node"
    failures, held_back = dict(moves.failures), dict(moves.held_back)
    if "ReleaseFailed" not in failures and (again := _tried_again(moves)):
        return "True", "BackingOff", "; ".join([again, *failures.values()])
    for found in (failures, {key: held_back[key] for key in _STANDING if key in held_back}):
        for reason, message in found.items():
            return "True", reason, message
    if moves.after:
        names = ", ".join(f"{item.old} ({item.phase})" for item in moves.after[:3])
        verb = "is" if len(moves.after) == 1 else "are"
        return "True", "Transferring", f"{_pods(len(moves.after))} {verb} moving from {names}"
    for reason, message in held_back.items():
        return "True", reason, message
    return "False", "AllOnEligibleNodes", "every bound pod is on an eligible node"


def _audit_refused(outcome: Outcome) -> Verdict:
    return audit_records.condition_of(outcome.lacking)


_STANDING = ("BackingOff", "Static")  # nothing that goes on elsewhere ends these


def _tried_again(moves: TransferResult) -> str:
    """What is tried once more after it failed: not over before the new pod is there; empty for none."""
    for item in moves.after:
        attempts = node_transfer.backoff_of(moves.backoffs, item.old).attempts
        if attempts and node_transfer.phase_of(item) is not node_transfer.TransferPhase.FINISHING:
            times = "once" if attempts == 1 else f"{attempts} times"
            return f"pods on {item.old} are moved again: it failed {times} lately ({item.phase})"
    return ""


_HELD_UP = frozenset(
    {
        "DisruptionBudget",
        "DeletionsHeld",
        Reason.INVALID.value,
        "NodesUnknown",
        INVALID_ANNOTATION,
        "Paused",
        "CrashLoopBackOff",
        "RolledBack",
        "WriteFailed",
    }
)

RULES: tuple[tuple[str, Callable[[Outcome], Verdict]], ...] = (
    ("Available", _available),
    ("Reconciled", _reconciled),
    ("InsufficientNodes", _insufficient),
    ("Misplaced", _misplaced),
    ("Paused", _paused),
    ("Progressing", _progressing),
    ("RolloutFailed", _rollout_failed),
    (audit_records.CONDITION, _audit_refused),
)
"""Condition type and its rule, in the order in which conditions are written."""


def status_of(outcome: Outcome, now: datetime) -> ReplicationControllerStatus:
    """The status that the controller should have; equal to the old one when nothing changed."""
    controller = outcome.controller
    said, generation = controller.status.conditions, controller.metadata.generation
    for kind, rule in RULES:
        said = conditions.judged(said, kind, rule(outcome), generation=generation, now=now)
    return replace(
        controller.status,
        observed_generation=controller.metadata.generation,
        replicas=len(outcome.active),
        selector=selector_of(controller.metadata.name, controller.metadata.uid),
        ready_replicas=outcome.ready,
        updated_replicas=outcome.updated,
        available_replicas=outcome.available,
        conditions=said,
    )


def refused(
    controller: ReplicationController, why: str, now: datetime
) -> ReplicationControllerStatus:
    """The status of a controller that cannot be acted on: as it was, and that it cannot."""
    message = f"{why}: correct the spec; until then nothing is touched"
    said, generation = controller.status.conditions, controller.metadata.generation
    verdict = "False", Reason.INVALID.value, message
    said = conditions.judged(said, "Reconciled", verdict, generation=generation, now=now)
    return replace(controller.status, observed_generation=generation, conditions=said)


def skips(before: Sequence[Condition], now: Sequence[Condition]) -> list[str]:
    """Reasons for which something is left undone now, and was not before."""
    known = {item.reason for item in before if _tells_of_skip(item)}
    found = [item.reason for item in now if _tells_of_skip(item)]
    return sorted(set(found) - known)


def _tells_of_skip(item: Condition) -> bool:
    if item.type in {"Misplaced", "InsufficientNodes"}:
        return item.status == "True" and item.reason != "Transferring"
    return item.type == "Reconciled" and item.reason in _HELD_UP


def fence_of(controller: ReplicationController) -> Document:
    """The part of a patch that makes it fail if the controller changed meanwhile."""
    meta = controller.metadata
    return {"metadata": preconditions(meta)}


def patch_of(controller: ReplicationController, status: ReplicationControllerStatus) -> Document:
    """The merge patch that writes the status, unless the controller changed meanwhile."""
    outbox: Document = {}
    if status.outbox != controller.status.outbox:
        outbox["outbox"] = msgspec.to_builtins(status.outbox)
    if status.audited != controller.status.audited:
        outbox["audited"] = status.audited
    if status.pending_deletions != controller.status.pending_deletions:
        outbox["pendingDeletions"] = msgspec.to_builtins(status.pending_deletions)
    return {
        **fence_of(controller),
        "status": {
            **outbox,
            "observedGeneration": status.observed_generation,
            "replicas": status.replicas,
            "selector": status.selector,
            "readyReplicas": status.ready_replicas,
            "updatedReplicas": status.updated_replicas,
            "availableReplicas": status.available_replicas,
            "conditions": [msgspec.to_builtins(item) for item in status.conditions],
        },
    }


def rollout_of(status: ReplicationControllerStatus) -> Document:
    """The part of the status that says how far the rollout shall go, as a merge patch writes it."""
    state = status.rollout
    if state is None:
        return {}
    return {
        "rollout": {
            # Every field, also those at their default: the patch must be able to set them back.
            item.encode_name: getattr(state, item.name)
            for item in msgspec.structs.fields(state)
        },
        "history": [msgspec.to_builtins(item) for item in status.history],
    }
