"""What a controller says about itself: counts and conditions, as a table of rules.

Every condition is always there. Abnormal-is-true conditions (``InsufficientNodes``, ``Paused``)
are named after the abnormality, so that ``kubectl wait`` can wait for either state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import floor

import msgspec
from msgspec.structs import replace

from grange.api import conditions, timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import (
    ReplicationController,
    ReplicationControllerStatus,
)
from grange.api.meta import Condition, Document
from grange.controllers.replication import identity, logic, ranking

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
        updated: how many of them are made from today's template.
        plan: what the pass decided.
        failure: the first error while carrying it out; empty for none.
        next_available_s: seconds until the next ready pod counts as available; None for none.
    """

    controller: ReplicationController
    active: tuple[Pod, ...]
    available: int
    ready: int
    updated: int
    plan: logic.Plan
    failure: str = ""
    next_available_s: float | None = None

    @property
    def replicas(self) -> int:
        """How many pods are wanted."""
        return max(0, self.controller.spec.replicas)


def share(value: int | str, replicas: int, *, up: bool = False) -> int:
    """A count or a percentage of the replicas, as a count; a percentage rounds down unless ``up``.

    Text that is no percentage counts as zero.
    """
    if isinstance(value, int):
        return max(0, value)
    digits = value.removesuffix("%")
    if digits == value or not digits.isdecimal():
        return 0
    exact = int(digits) * replicas / 100
    return floor(exact) if not up else -floor(-exact)


def wait_for_available(controller: ReplicationController, pod: Pod, now: datetime) -> float:
    """Seconds until a pod that is ready counts as available; zero if it does."""
    needed = controller.spec.rollout.min_ready_seconds
    if needed <= 0:
        return 0.0
    ready = pods.condition(pod, "Ready")
    if ready is None or not ready.last_transition_time:
        return needed
    since = timestamps.parse(ready.last_transition_time)
    return max(0.0, needed - (now - since).total_seconds())


def observe(
    situation: logic.Situation, plan: logic.Plan, *, now: datetime, failure: str = ""
) -> Outcome:
    """Count the pods."""
    controller = situation.controller
    active = tuple(pod for pod in situation.owned if logic.is_active(pod))
    waits = [
        wait_for_available(controller, pod, now)
        for pod in active
        if ranking.is_ready(pod, situation.down)
    ]
    made_from = identity.template_hash(controller)
    return Outcome(
        controller=controller,
        active=active,
        available=waits.count(0.0),
        ready=len(waits),
        updated=sum(
            pod.metadata.labels.get(identity.TEMPLATE_HASH_LABEL) == made_from for pod in active
        ),
        plan=plan,
        failure=failure,
        next_available_s=min((wait for wait in waits if wait > 0.0), default=None),
    )


def _available(outcome: Outcome) -> Verdict:
    wanted = outcome.replicas
    allowed = share(outcome.controller.spec.rollout.max_unavailable, wanted)
    message = f"{outcome.available} of {wanted} replicas are available"
    if outcome.available >= wanted - allowed:
        return "True", "MinimumReplicasAvailable", message
    return "False", "MinimumReplicasUnavailable", message


def _reconciled(outcome: Outcome) -> Verdict:
    wanted, have = outcome.replicas, len(outcome.active)
    if outcome.failure:
        return "False", "WriteFailed", outcome.failure
    if outcome.controller.spec.paused:
        return "False", "Paused", "neither scaled nor repaired while spec.paused is true"
    if outcome.plan.short:
        return "False", "InsufficientNodes", _shortage(outcome)
    if outcome.plan.scaling or have != wanted:
        return "False", "Scaling", f"{have} of {wanted} replicas exist"
    if outcome.plan.repair:
        return "False", "Repairing", f"labels of {len(outcome.plan.repair)} pods are put back"
    if outcome.updated < have:
        return (
            "False",
            "Outdated",
            f"{have - outcome.updated} pods are made from an earlier template; "
            "delete a pod to have it made anew",
        )
    return "True", "AsWanted", f"{wanted} replicas exist as wanted"


def _shortage(outcome: Outcome) -> str:
    wanted = outcome.replicas
    if outcome.controller.spec.placement == "Packed":
        return f"no node is eligible for the {wanted} replicas"
    return f"{outcome.plan.short} of {wanted} replicas have no eligible node"


def _insufficient(outcome: Outcome) -> Verdict:
    if outcome.plan.short:
        return "True", "NotEnoughEligibleNodes", _shortage(outcome)
    if outcome.controller.spec.paused:
        return "False", "Paused", "not judged while spec.paused is true"
    return "False", "EnoughEligibleNodes", "every replica has an eligible node"


def _paused(outcome: Outcome) -> Verdict:
    if outcome.controller.spec.paused:
        return "True", "SpecPaused", "spec.paused is true"
    return "False", "NotPaused", "spec.paused is false"


RULES: tuple[tuple[str, Callable[[Outcome], Verdict]], ...] = (
    ("Available", _available),
    ("Reconciled", _reconciled),
    ("InsufficientNodes", _insufficient),
    ("Paused", _paused),
)
"""Condition type and its rule, in the order in which conditions are written."""


def status_of(outcome: Outcome, now: datetime) -> ReplicationControllerStatus:
    """The status that the controller should have; equal to the old one when nothing changed."""
    controller = outcome.controller
    said = controller.status.conditions
    for kind, rule in RULES:
        verdict, reason, message = rule(outcome)
        condition = Condition(
            type=kind,
            status=verdict,
            reason=reason,
            message=message,
            observed_generation=controller.metadata.generation,
        )
        said = conditions.set_condition(said, condition, timestamps.rfc3339(now))
    return replace(
        controller.status,
        observed_generation=controller.metadata.generation,
        replicas=len(outcome.active),
        ready_replicas=outcome.ready,
        updated_replicas=outcome.updated,
        conditions=said,
    )


def patch_of(controller: ReplicationController, status: ReplicationControllerStatus) -> Document:
    """The merge patch that writes the status, unless the controller changed meanwhile."""
    return {
        "metadata": {
            "uid": controller.metadata.uid,
            "resourceVersion": controller.metadata.resource_version,
        },
        "status": {
            "observedGeneration": status.observed_generation,
            "replicas": status.replicas,
            "readyReplicas": status.ready_replicas,
            "updatedReplicas": status.updated_replicas,
            "conditions": [msgspec.to_builtins(item) for item in status.conditions],
        },
    }
