"""The status of a ReplicationController after a reconcile: its counts, and a rule for each condition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from msgspec.structs import replace

from grange.api import conditions
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import (
    ReplicationController,
    ReplicationControllerStatus,
    selector_of,
)
from grange.api.meta import Condition
from grange.api.rollouts import RolloutState
from grange.base.plurals import be, counted
from grange.controllers.replication import (
    condition_types,
    deletion_budgets,
    node_transfer,
)
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Inputs, Plan
from grange.controllers.shared import audit_records, pod_identity
from grange.controllers.shared.event_reasons import INVALID_ANNOTATION, Reason
from grange.controllers.shared.rollout_phase import RolloutPhase
from grange.reconcile.farm.errors import DeletionsHeld

Finding = tuple[str, str]
"""Reason and message; the status is the reason's (see ``condition_types``)."""


@dataclass(frozen=True)
class ReconcileOutcome:
    """What a reconcile observed and did.

    Attributes:
        inputs: what was observed.
        plan: what was decided.
        transfers: the result of its node transfers.
        failure: the first error; None for none, and for a normal race.
        missing: what the audit lacks because the server refused it; empty for nothing.
        malformed: which of its annotations is malformed; empty for none.
        shortage: why replicas have no eligible node.
    """

    inputs: Inputs
    plan: Plan
    transfers: TransferResult = field(default_factory=TransferResult)
    failure: Exception | None = None
    missing: str = ""
    malformed: str = ""
    shortage: str = ""

    @property
    def controller(self) -> ReplicationController:
        """The controller as it was observed."""
        return self.inputs.controller

    @cached_property
    def active(self) -> Sequence[Pod]:
        """Its pods that are neither finished nor terminating."""
        return [pod for pod in self.inputs.owned if pods.is_active(pod)]

    @cached_property
    def updated(self) -> int:
        """How many of them are made from ``spec.template``."""
        return sum(pod_identity.is_of(pod, self.rollout.spec_hash) for pod in self.active)

    @property
    def minimum(self) -> int:
        """How many must be available at any time."""
        return deletion_budgets.limits(self.controller).minimum

    @property
    def replicas(self) -> int:
        """How many are wanted."""
        return max(0, self.controller.spec.replicas)

    @cached_property
    def rollout(self) -> RolloutState:
        """The rollout of the template; one that begins if none is stored."""
        if (state := self.controller.status.rollout) is not None:
            return state
        wanted = pod_identity.template_hash(self.controller)
        return RolloutState(0, wanted, wanted, phase=RolloutPhase.PROGRESSING.value)

    @property
    def phase(self) -> RolloutPhase:
        """The phase of the rollout."""
        return RolloutPhase(self.rollout.phase)


def _count_of(have: int, wanted: int, *, one: str, more: str) -> str:
    """So many of those wanted; there can be more, while some are terminating."""
    if have <= wanted:
        return f"{have} of {counted(wanted, f'replica {one}', f'replicas {more}')}"
    return f"{counted(have, f'replica {one}', f'replicas {more}')}, {wanted} wanted"


def _available(outcome: ReconcileOutcome) -> Finding:
    have, wanted = len(outcome.inputs.health.available), outcome.replicas
    message = _count_of(have, wanted, one="is available", more="are available")
    if have >= outcome.minimum:
        return "MinimumReplicasAvailable", message
    return "MinimumReplicasUnavailable", message


def _reconciled(outcome: ReconcileOutcome) -> Finding:
    plan, wanted = outcome.plan, outcome.replicas
    if (failed := _failed(outcome)) is not None:
        return failed
    if outcome.controller.spec.paused:
        return "Paused", "neither scaled nor repaired while spec.paused is true"
    if plan.short:
        return "InsufficientNodes", _shortage(outcome)
    if outcome.inputs.sides is not None and not plan.budget:
        return "RollingOut", f"{outcome.updated} of {wanted} replicas are updated"
    if (waits := _waits(outcome)) is not None:
        return waits
    if plan.repair:
        return "Repairing", f"labels of {counted(len(plan.repair), 'pod')} are put back"
    if outcome.updated < len(outcome.active):
        return _outdated(outcome)
    return "ReplicasReady", f"{counted(wanted, 'replica exists', 'replicas exist')} as specified"


def _failed(outcome: ReconcileOutcome) -> Finding | None:
    failure = outcome.failure
    if failure is None:
        return (INVALID_ANNOTATION, outcome.malformed) if outcome.malformed else None
    if isinstance(failure, DeletionsHeld):
        return "DeletionsHeld", str(failure)
    reason = "NodesUnknown" if failure is outcome.inputs.nodes_error else "WriteFailed"
    return reason, str(failure)


def _waits(outcome: ReconcileOutcome) -> Finding | None:
    """Why the number of pods is not the wanted one; None if it is."""
    plan, wanted, have = outcome.plan, outcome.replicas, len(outcome.active)
    if plan.kept:
        verb = "stays" if plan.kept == 1 else "stay"
        needed = f"{outcome.minimum} must be available"
        if plan.budget:
            needed = f"PodDisruptionBudget {plan.budget} allows no more"
        return "DisruptionBudget", f"{counted(plan.kept, 'pod')} {verb} for now: {needed}"
    if plan.held:
        return (
            "CrashLoopBackOff",
            f"{counted(plan.held, 'pod')} ended several times: replaced after a delay",
        )
    if plan.scaling or have != wanted:
        return "Scaling", _count_of(have, wanted, one="exists", more="exist")
    return None


def _outdated(outcome: ReconcileOutcome) -> Finding:
    if outcome.phase is RolloutPhase.ROLLED_BACK:
        return "RolledBack", outcome.rollout.message + "; change spec.template to try again"
    count = len(outcome.active) - outcome.updated
    message = f"{counted(count, 'pod')} {be(count)} made from another template"
    if outcome.controller.spec.rollout.type != "RollingUpdate":
        message += "; delete a pod to replace it"
    return "Outdated", message


def _progressing(outcome: ReconcileOutcome) -> Finding:
    message, revision = outcome.rollout.message, outcome.rollout.revision
    wanted = counted(outcome.replicas, "replica is updated", "replicas are updated")
    count = f"revision {revision}: {outcome.updated} of {wanted}"
    found: dict[RolloutPhase, Finding] = {
        RolloutPhase.PAUSED: ("RolloutPaused", count),
        RolloutPhase.WAITING: ("RolloutWaiting", count),
        RolloutPhase.COMPLETE: ("RolloutComplete", f"revision {revision} is rolled out"),
        RolloutPhase.FAILED: ("ProgressDeadlineExceeded", message),
        RolloutPhase.ROLLING_BACK: ("RollingBack", message),
        RolloutPhase.ROLLED_BACK: ("RolledBack", message),
    }
    return found.get(outcome.phase, ("RollingOut", count))


def _rollout_failed(outcome: ReconcileOutcome) -> Finding:
    if outcome.phase is RolloutPhase.FAILED:
        return "ProgressDeadlineExceeded", outcome.rollout.message
    if outcome.phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}:
        return outcome.phase.value, outcome.rollout.message
    return "NotFailed", "no rollout has failed since spec.template changed"


def _shortage(outcome: ReconcileOutcome) -> str:
    wanted = outcome.replicas
    why = f": {outcome.shortage}" if outcome.shortage else ""
    if outcome.controller.spec.placement == "Packed":
        return f"no node is eligible for the {counted(wanted, 'replica')}{why}"
    have = counted(wanted, "replica has", "replicas have")
    return f"{outcome.plan.short} of {have} no eligible node{why}"


def _insufficient(outcome: ReconcileOutcome) -> Finding | None:
    if outcome.inputs.nodes_error is not None:
        return None
    if outcome.plan.short:
        return "NotEnoughEligibleNodes", _shortage(outcome)
    if outcome.controller.spec.paused:
        return "Paused", "not evaluated while spec.paused is true"
    return "EnoughEligibleNodes", "every replica has an eligible node"


def _paused(outcome: ReconcileOutcome) -> Finding:
    if outcome.controller.spec.paused:
        return "SpecPaused", "spec.paused is true"
    return "NotPaused", "spec.paused is false"


def _misplaced(outcome: ReconcileOutcome) -> Finding | None:
    """One reason of several: what needs an operator comes before what goes on by itself."""
    if outcome.inputs.nodes_error is not None:
        return None
    transfers = outcome.transfers
    failures, held_back = transfers.failures, transfers.held_back
    if "ReleaseFailed" not in failures and (retried := _retried(transfers)):
        return "BackingOff", "; ".join([retried, *failures.values()])
    lasting = {key: held_back[key] for key in _LASTING if key in held_back}
    for found in (failures, lasting):
        if found:
            return next(iter(found.items()))
    if transfers.after:
        names = ", ".join(f"{item.old} ({item.phase})" for item in transfers.after[:3])
        moving = counted(len(transfers.after), "pod is moving", "pods are moving")
        return "Transferring", f"{moving} from {names}"
    if held_back:
        return next(iter(held_back.items()))
    return "AllOnEligibleNodes", "every bound pod is on an eligible node"


_LASTING = ("BackingOff", "Static")  # a transfer that goes on elsewhere does not end these


def _retried(transfers: TransferResult) -> str:
    """Which transfer is tried again after a failure and has no new pod yet; empty for none."""
    for item in transfers.after:
        attempts = transfers.backoff(item.old).attempts
        finishing = node_transfer.TransferPhase.FINISHING
        if attempts and node_transfer.phase_of(item) is not finishing:
            times = "once" if attempts == 1 else f"{attempts} times"
            return f"the transfer from {item.old} is tried again: it failed {times} ({item.phase})"
    return ""


def _audit_refused(outcome: ReconcileOutcome) -> Finding:
    _, reason, message = audit_records.condition_of(outcome.missing)
    return reason, message


RULES: Mapping[str, Callable[[ReconcileOutcome], Finding | None]] = {
    "Available": _available,
    "Reconciled": _reconciled,
    "InsufficientNodes": _insufficient,
    "Misplaced": _misplaced,
    "Paused": _paused,
    "Progressing": _progressing,
    "RolloutFailed": _rollout_failed,
    audit_records.CONDITION: _audit_refused,
}
"""The rule of each condition; None keeps what was known: a problem does not end because nodes are unknown."""


def status_of(outcome: ReconcileOutcome, now: datetime) -> ReplicationControllerStatus:
    """The status that the controller should have; equal to the old one if nothing changed."""
    controller = outcome.controller
    known, generation = controller.status.conditions, controller.metadata.generation
    for name, kind in condition_types.CONDITIONS.items():
        found = RULES[name](outcome)
        if found is not None:
            verdict = kind.reasons[found[0]].status, *found
        elif (before := conditions.find(known, name)) is not None:
            verdict = before.status, before.reason, before.message
        else:
            verdict = "Unknown", "NodesUnknown", "it is not known which nodes may be used"
        known = conditions.set_status(known, name, verdict, generation=generation, now=now)
    return replace(
        controller.status,
        observed_generation=generation,
        replicas=len(outcome.active),
        selector=selector_of(controller.metadata.name, controller.metadata.uid),
        ready_replicas=outcome.inputs.health.ready,
        updated_replicas=outcome.updated,
        available_replicas=len(outcome.inputs.health.available),
        conditions=known,
    )


def refused(
    controller: ReplicationController, why: str, now: datetime
) -> ReplicationControllerStatus:
    """The status of a controller whose spec cannot be acted on."""
    verdict = (
        "False",
        Reason.INVALID.value,
        f"{why}: correct the spec; until then nothing is touched",
    )
    generation = controller.metadata.generation
    found = conditions.set_status(
        controller.status.conditions, "Reconciled", verdict, generation=generation, now=now
    )
    return replace(controller.status, observed_generation=generation, conditions=found)


def skips(before: Sequence[Condition], now: Sequence[Condition]) -> list[str]:
    """Reasons for which something is left undone now, and was not before."""

    def reasons(found: Sequence[Condition]) -> set[str]:
        known = ((item.reason, condition_types.reason_of(item)) for item in found)
        return {name for name, reason in known if reason is not None and reason.is_skip}

    return sorted(reasons(now) - reasons(before))
