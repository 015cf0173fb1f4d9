"""Which machines may be disrupted, and what that would cost the pods on them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.nodepool import DO_NOT_DISRUPT_ANNOTATION, NodePool
from grange.api.kinds.pod import FINISHED, Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.machine_phases import MachinePhase
from grange.api.meta import ObjectMeta, controller_of
from grange.api.selectors import Labels, SelectorError
from grange.machines.disruption.disruption_progress import is_disrupted
from grange.machines.scaling.packing_pods import is_daemon

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
_COST_MAX = 10.0


@dataclass(frozen=True, slots=True)
class DisruptionCandidate:
    """A machine that may be disrupted.

    Attributes:
        machine: its record.
        pool: its pool.
        pods: that would have to run elsewhere.
        price: per hour.
        cost: what it costs the pods: at least 1.
        changed: when something about its pods last changed.
        created: when it was ordered.
    """

    machine: Machine
    pool: NodePool
    pods: tuple[Pod, ...]
    price: Decimal
    cost: float
    changed: datetime
    created: datetime

    @property
    def name(self) -> str:
        """Of the machine."""
        return self.machine.metadata.name


class PodBudgets:
    """What PodDisruptionBudgets allow."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets: dict[str, list[tuple[str, Labels, int]]] = {}
        for budget in budgets:
            meta = budget.metadata
            try:
                selector = Labels.of(budget.spec.selector)
            except SelectorError:
                continue  # the API server accepts none of these
            allowed = budget.status.disruptions_allowed
            self._budgets.setdefault(meta.namespace, []).append((meta.name, selector, allowed))

    def blocking(self, pod: Pod) -> str:
        """Name of a budget that lets the pod not go now; empty if all do."""
        meta = pod.metadata
        for name, selector, allowed in self._budgets.get(meta.namespace, ()):
            if allowed < 1 and selector.matches(meta.labels):
                return name
        return ""


def moving_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Of the pods of a node those that would have to run elsewhere."""
    return tuple(
        pod
        for pod in pods
        if pod.status.phase not in FINISHED
        and pod.metadata.deletion_timestamp is None
        and not is_daemon(pod)
    )


def candidate_of(  # noqa: PLR0913  what is known of one machine
    machine: Machine,
    node: Node | None,
    pool: NodePool,
    pods: Sequence[Pod],
    *,
    nominated: Mapping[str, str],
    changes: Mapping[str, datetime],
    now: datetime,
    must_go: bool = False,
) -> DisruptionCandidate | str:
    """The machine as a candidate, or why it is none.

    Args:
        machine: its record.
        node: of the machine.
        pool: its pool.
        pods: on the node.
        nominated: why machines stay that are meant for what waits, by name.
        changes: when pods came to or left machines, where that is known.
        now: wall time.
        must_go: its provider takes it away, whatever is meant for it.
    """
    meta = machine.metadata
    if machine.phase is not MachinePhase.AVAILABLE:
        return f"it is {machine.phase.value}"
    if machine.is_ending:
        return "it ends"
    if node is None or not is_ready(node):
        return "its node is not ready"
    if is_disrupted(machine):
        return "it is being disrupted"
    if meta.name in nominated and not must_go:
        return nominated[meta.name]
    if MACHINE_LEASE in node.metadata.labels and not must_go:
        return "a MachineLease has it"
    for what, each in (("machine", meta), ("node", node.metadata)):
        if _protected(each) and not must_go:
            return f"{DO_NOT_DISRUPT_ANNOTATION} on the {what}"
    moving = moving_pods(pods)
    created = timestamps.parse_or(meta.creation_timestamp, now)
    return DisruptionCandidate(
        machine,
        pool,
        moving,
        price_of(machine),
        1.0 + sum(max(0.0, eviction_cost(pod)) for pod in moving),
        _changed(machine, moving, changes.get(machine.node), created),
        created,
    )


def blocking_pod(candidate: DisruptionCandidate, budgets: PodBudgets) -> str:
    """Why a pod of the machine must stay where it is; empty if none must."""
    for pod in candidate.pods:
        if _protected(pod.metadata):
            return f"pod {pod.key}: {DO_NOT_DISRUPT_ANNOTATION}"
        if controller_of(pod.metadata) is None:
            return f"pod {pod.key} has no controller that would replace it"
        if name := budgets.blocking(pod):
            return f"pod {pod.key}: PodDisruptionBudget {name} allows no disruption now"
    return ""


def quiet_since(candidate: DisruptionCandidate, now: datetime) -> timedelta:
    """For how long nothing has changed on the machine."""
    return now - candidate.changed


def eviction_cost(pod: Pod) -> float:
    """What it costs to evict a pod: 1, more for important ones."""
    try:
        given = float(pod.metadata.annotations.get(DELETION_COST_ANNOTATION, "0"))
    except ValueError:
        given = 0.0
    cost = 1.0 + given / 2**27 + pod.spec.priority / 2**25
    return max(-_COST_MAX, min(_COST_MAX, cost))


def price_of(machine: Machine) -> Decimal:
    """Per hour; zero where it is not known."""
    text = machine.status.price_per_hour
    if not text:
        kind, zone = machine.status.instance_type, machine.status.zone
        text = next(
            (
                each.price_per_hour
                for each in machine.spec.candidates
                if not kind
                or (each.instance_type, each.zone, each.spot) == (kind, zone, machine.status.spot)
            ),
            "",
        )
    try:
        return Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)


def _protected(meta: ObjectMeta) -> bool:
    return meta.annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"


def _changed(
    machine: Machine, pods: Iterable[Pod], known: datetime | None, created: datetime
) -> datetime:
    """When the machine became available, or a pod came or left, whichever was last."""
    times = [timestamps.parse_or(machine.status.available_time, created)]
    times += [
        timestamps.parse_or(pod.status.start_time or pod.metadata.creation_timestamp, created)
        for pod in pods
    ]
    return max([*times, known] if known is not None else times)
