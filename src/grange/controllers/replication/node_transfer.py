"""Node transfers: a pod moves to another node by coming up there first. Pure; ``now`` is given.

Theory of operation. A transfer lives in the controller's status, so it survives its owner. It is one
row of a state machine (``TRANSITIONS``); what happened to it is read off the pods and nodes
(``happened``), and a phase is written before anything is done in it. So whoever owns the controller
after a crash finds the phase, does what it asks for again (every act is idempotent: allocation by
request id, creation by name, deletion by uid) and goes on.

While a transfer is under way the rest of the controller does not see both of its pods, only the one
that counts: the old pod until the new one is available, the new one from then on. ``hidden`` is
that view; ``keeping_needed`` keeps the other rules from removing the pod that is still needed. When the new
one fails again before the old one could go, the deadline decides: it is rolled back after all.

Source of the order of steps: the make-before-break transfer of spec/replication §4a.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace as changed

from grange.api import rollouts, timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.replication import doomed
from grange.base.statemachine import diagram
from grange.controllers.replication import logic, rollout
from grange.controllers.shared import availability, deletion_order, pod_identity


class Phase(StrEnum):
    """Where a transfer is.

    ``ALLOCATING``: it needs a node. ``STARTING``: the new pod is made and has to become available.
    ``FINISHING``: the old pod goes, and its node is released. ``ROLLING_BACK``: the new pod goes, and
    what was allocated for it is released. ``DONE`` is never stored: the transfer is dropped.
    """

    ALLOCATING = "Allocating"
    STARTING = "Starting"
    FINISHING = "Finishing"
    ROLLING_BACK = "RollingBack"
    DONE = "Done"


class Event(StrEnum):
    """What can happen to a transfer."""

    FOUND = "a node is found"
    CALLED_OFF = "the old pod may stay or is gone"
    AVAILABLE = "the new pod is available"
    OLD_GONE = "the old pod is gone"
    NEW_LOST = "the new node is no longer eligible"
    EXPIRED = "the deadline has passed"
    RELAPSED = "the deadline has passed and the new pod is not available any more"
    RELEASED = "the pod is gone and its node is released"


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.ALLOCATING, Event.FOUND): Phase.STARTING,
    (Phase.ALLOCATING, Event.CALLED_OFF): Phase.ROLLING_BACK,
    (Phase.ALLOCATING, Event.EXPIRED): Phase.ROLLING_BACK,
    (Phase.STARTING, Event.AVAILABLE): Phase.FINISHING,
    (Phase.STARTING, Event.OLD_GONE): Phase.FINISHING,
    (Phase.STARTING, Event.CALLED_OFF): Phase.ROLLING_BACK,
    (Phase.STARTING, Event.NEW_LOST): Phase.ROLLING_BACK,
    (Phase.STARTING, Event.EXPIRED): Phase.ROLLING_BACK,
    (Phase.FINISHING, Event.RELAPSED): Phase.ROLLING_BACK,
    (Phase.FINISHING, Event.RELEASED): Phase.DONE,
    (Phase.ROLLING_BACK, Event.RELEASED): Phase.DONE,
}
"""The state machine. What is not here does not happen."""


def diagrams() -> dict[str, str]:
    """The diagram by its name, for the documentation."""
    return {"node transfer": diagram(TRANSITIONS, Phase.ALLOCATING, frozenset({Phase.DONE}))}


_BEFORE_SWITCH = frozenset({Phase.ALLOCATING, Phase.STARTING, Phase.ROLLING_BACK})


@dataclass(frozen=True, slots=True)
class Move:
    """One step of one transfer.

    Attributes:
        before: as it was stored; None for a new one.
        after: as it is to be stored; None when it is over.
    """

    before: NodeTransfer | None
    after: NodeTransfer | None


def phase_of(transfer: NodeTransfer) -> Phase:
    """Its phase; one that this version does not know is rolled back, which loses nothing."""
    try:
        return Phase(transfer.phase)
    except ValueError:
        return Phase.ROLLING_BACK


def step(transfer: NodeTransfer, event: Event) -> NodeTransfer | None:
    """The transfer after an event; itself where the event means nothing, None when it is over."""
    phase = TRANSITIONS.get((phase_of(transfer), event))
    if phase is None:
        return transfer
    if phase is Phase.DONE:
        return None
    reason = event.value if phase is Phase.ROLLING_BACK else ""
    return changed(transfer, phase=phase.value, reason=reason)


def deadline_of(transfer: NodeTransfer) -> datetime:
    """When the current phase expires; long ago where the text is no time (edited by a user)."""
    return timestamps.parse_or(transfer.deadline, timestamps.EPOCH)


def happened(
    transfer: NodeTransfer, inputs: logic.Inputs, drained: Collection[str], now: datetime
) -> Event | None:
    """What has happened to a transfer, but for releases; the first that holds.

    Args:
        transfer: as stored.
        inputs: with all pods of the controller.
        drained: nodes that an operator wants to be left.
        now: wall time.
    """
    phase = phase_of(transfer)
    old = _by_uid(inputs.owned, transfer.old_uid)
    old_gone = old is None or not pods.is_active(old)
    expired = now >= deadline_of(transfer)
    if phase is Phase.ALLOCATING:
        stays = transfer.old in inputs.nodes_for(old) and transfer.old not in drained
        if old_gone or stays:
            return Event.CALLED_OFF
        return Event.EXPIRED if expired else None
    if phase is Phase.STARTING:
        new = new_pod(transfer, inputs.owned)
        if new is not None and is_available(inputs, new, now):
            return Event.AVAILABLE
        if old_gone:
            return Event.CALLED_OFF if new is None else Event.OLD_GONE
        node = transfer.new if new is None else pod_identity.node_of(new)
        expected = new is None and transfer.allocated  # a machine may be on its way
        if node and node not in inputs.nodes_for(new or old) and not expected:
            return Event.NEW_LOST
        return Event.EXPIRED if expired else None
    if phase is Phase.FINISHING and expired and old is not None:
        # Waiting for the budget, which may need the old pod for as long as the new one fails. One
        # that serves nobody is not waited for: it goes at once.
        new = new_pod(transfer, inputs.owned)
        relapsed = new is None or not is_available(inputs, new, now)
        return Event.RELAPSED if relapsed and is_available(inputs, old, now) else None
    return None


def is_available(inputs: logic.Inputs, pod: Pod, now: datetime) -> bool:
    """Whether an active pod is ready, for long enough, by news that is not stale."""
    if inputs.available is not None:
        return pods.is_active(pod) and pod.metadata.uid in inputs.available
    return (
        pods.is_active(pod)
        and deletion_order.is_ready(pod, inputs.down)
        and availability.wait_for_available(inputs.controller, pod, now) == 0.0
    )


def new_pod(transfer: NodeTransfer, owned: Iterable[Pod]) -> Pod | None:
    """The pod that a transfer made, if it is there."""
    if not transfer.new_pod:
        return None
    return next((pod for pod in owned if pod.metadata.name == transfer.new_pod), None)


def with_new_node(transfer: NodeTransfer, owned: Iterable[Pod]) -> NodeTransfer:
    """The transfer with the node of its new pod, also where the scheduler chose it."""
    new = None if transfer.new else new_pod(transfer, owned)
    return transfer if new is None else changed(transfer, new=pod_identity.node_of(new))


def old_pod(transfer: NodeTransfer, owned: Iterable[Pod]) -> Pod | None:
    """The pod that a transfer replaces, if it is still there."""
    return _by_uid(owned, transfer.old_uid)


def _by_uid(owned: Iterable[Pod], uid: str) -> Pod | None:
    return next((pod for pod in owned if pod.metadata.uid == uid), None)


# --- which pods move ---------------------------------------------------------------------------


def misplaced(inputs: logic.Inputs) -> list[Pod]:
    """Active pods that are bound to a node that is not eligible, in order of node and name."""
    found = [
        pod
        for pod in inputs.owned
        if pods.is_active(pod)
        and pod.spec.node_name
        and pod.spec.node_name not in inputs.nodes_for(pod)
    ]
    return sorted(found, key=lambda pod: (pod.spec.node_name, pod.metadata.name))


def going(inputs: logic.Inputs) -> frozenset[str]:
    """Uids of the pods that go in any case: those in excess, and those that were ordered to go.

    While a rollout is under way its surge is no excess: each side has the count that is written down.

    Args:
        inputs: with the pods that count, see ``hidden``.
    """
    controller = inputs.controller
    active = [pod for pod in inputs.owned if pods.is_active(pod)]
    sides = rollout.stored(controller)
    counted = [(active, controller.spec.replicas)]
    if sides is not None:
        new = [pod for pod in active if pod_identity.is_of(pod, sides.template_hash)]
        old = [pod for pod in active if not pod_identity.is_of(pod, sides.template_hash)]
        counted = [(new, sides.new_replicas), (old, sides.old_replicas)]
    excess: list[Pod] = []
    for group, wanted in counted:
        surplus = max(0, len(group) - wanted)
        places = inputs.nodes_for(group[0] if group else None)
        excess += deletion_order.victims(group, places, inputs.down)[:surplus]
    return frozenset(pod.metadata.uid for pod in excess) | doomed(controller)


def may_move(controller: ReplicationController, pod: Pod, drained: Collection[str]) -> bool:
    """Whether a misplaced pod is to be moved: by strategy, or because an operator asks for it."""
    return controller.spec.strategy == "Dynamic" or pod.spec.node_name in drained


def at_once(controller: ReplicationController) -> int:
    """How many transfers may be under way: each has a pod too many, as ``maxSurge`` allows.

    One always may: without it a service that may not surge could never leave a node.
    """
    spec = controller.spec
    return max(1, rollouts.share(spec.rollout.max_surge, spec.replicas, up=True))


def begin(
    controller: ReplicationController, pod: Pod, *, transfer_id: str, now: datetime
) -> NodeTransfer:
    """A transfer of a pod, to be stored before anything is done for it."""
    limit = timedelta(seconds=controller.spec.rollout.progress_deadline_seconds)
    return NodeTransfer(
        id=transfer_id,
        phase=Phase.ALLOCATING.value,
        old=pod.spec.node_name,
        old_pod=pod.metadata.name,
        old_uid=pod.metadata.uid,
        started_at=timestamps.rfc3339(now),
        deadline=timestamps.rfc3339(now + limit),
    )


def spare_node(
    inputs: logic.Inputs,
    transfers: Sequence[NodeTransfer],
    avoid: Collection[str],
    pod: Pod | None = None,
) -> str | None:
    """A node for a pod's successor, without a pod of the controller and not promised to a transfer.

    Nodes where transfers failed lately come last, before them those without room; otherwise the
    first by name.
    """
    promised = {transfer.new for transfer in transfers}
    used = {pod_identity.node_of(pod) for pod in inputs.owned}
    places = inputs.nodes_for(pod)
    free = [node for node in places if node not in promised and node not in used]
    return min(free, key=lambda node: (node in avoid, node in inputs.full, node), default=None)


def found(
    transfer: NodeTransfer,
    node: str,
    inputs: logic.Inputs,
    transfers: Sequence[NodeTransfer],
    *,
    allocated: bool,
) -> NodeTransfer:
    """The transfer once it has a node (empty: the scheduler chooses) and the name of its pod.

    Args:
        transfer: which.
        node: of its new pod.
        inputs: with all pods of the controller.
        transfers: all, as they are now: what they have promised in this pass is not stored yet.
        allocated: whether the node was allocated for it.
    """
    controller = inputs.controller
    if node:
        name = pod_identity.name_for_node(controller, node, inputs.taken)
    else:
        ours = {pod.metadata.name for pod in inputs.owned}
        ours |= {other.new_pod for other in transfers}
        names = pod_identity.ordinal_names(controller, inputs.taken)
        name = next(name for name in names if name not in ours)
    after = step(transfer, Event.FOUND)
    return changed(after or transfer, new=node, new_pod=name, allocated=allocated)


# --- what the rest of the controller sees ------------------------------------------------------


def hidden(inputs: logic.Inputs, transfers: Sequence[NodeTransfer]) -> logic.Inputs:
    """The inputs without the pods that do not count and the nodes that are promised."""
    if not transfers:
        return inputs
    names = {item.new_pod for item in transfers if phase_of(item) in _BEFORE_SWITCH}
    nodes = {item.new for item in transfers if phase_of(item) in _BEFORE_SWITCH}
    uids = {item.old_uid for item in transfers if phase_of(item) is Phase.FINISHING}
    uncounted = [
        pod for pod in inputs.owned if pod.metadata.name in names or pod.metadata.uid in uids
    ]
    return inputs.without(nodes).hiding(uncounted, names)


def without_given_up(inputs: logic.Inputs, transfers: Sequence[NodeTransfer]) -> logic.Inputs:
    """The inputs in which nobody counts on pods that go because their transfers are rolled back."""
    if inputs.available is None:
        return inputs
    names = {item.new_pod for item in transfers if phase_of(item) is Phase.ROLLING_BACK}
    going = {pod.metadata.uid for pod in inputs.owned if pod.metadata.name in names}
    return replace(inputs, available=inputs.available - going)


def keeping_needed(plan: logic.Plan, transfers: Sequence[NodeTransfer]) -> logic.Plan:
    """The plan without removals of pods that transfers still need (but finished ones may go).

    They keep their share of the removals, so the count stays high until the transfer is over.
    """
    needed = {
        uid
        for item in transfers
        for uid in ((item.old_uid,) if phase_of(item) in _BEFORE_SWITCH else ())
    }
    needed_names = {item.new_pod for item in transfers if phase_of(item) is Phase.FINISHING}
    kept = tuple(
        removal
        for removal in plan.delete
        if removal.why not in {"Surplus", "OnePerNode", "NodeIneligible"}
        or (
            removal.pod.metadata.uid not in needed and removal.pod.metadata.name not in needed_names
        )
    )
    return plan if len(kept) == len(plan.delete) else replace(plan, delete=kept)


def with_acts(
    plan: logic.Plan,
    inputs: logic.Inputs,
    transfers: Sequence[NodeTransfer],
    *,
    spare: int,
    now: datetime,
) -> logic.Plan:
    """The plan, and what the stored transfers ask for.

    Args:
        plan: of everything else.
        inputs: with all pods of the controller.
        transfers: as they are stored; what is not stored yet is not acted on.
        spare: how many available pods may go: the disruption budget that is left.
        now: wall time.
    """
    if inputs.controller.metadata.deletion_timestamp:
        return plan  # what it leaves behind is not ours to arrange any more
    create, delete, kept = list(plan.create), list(plan.delete), plan.kept
    going = {removal.pod.metadata.uid for removal in delete}
    for item in transfers:
        new, old = new_pod(item, inputs.owned), old_pod(item, inputs.owned)
        match phase_of(item):
            case Phase.STARTING if new is None and item.new in {"", *inputs.nodes_for(old)}:
                source = _source(inputs, old)
                create.append(logic.Addition(item.new_pod, item.new, source))
            case Phase.FINISHING if old is not None and old.metadata.uid not in going:
                if old.metadata.deletion_timestamp:
                    continue
                if is_available(inputs, old, now):
                    if spare <= 0:
                        kept += 1
                        continue
                    spare -= 1
                delete.append(logic.Removal(old, "Transferred"))
            case Phase.ROLLING_BACK if new is not None and not new.metadata.deletion_timestamp:
                delete.append(logic.Removal(new, "TransferRolledBack"))
    return replace(plan, create=tuple(create), delete=tuple(delete), kept=kept)


def _source(inputs: logic.Inputs, old: Pod | None) -> ReplicationController | None:
    """A pod of the old side of a rollout stays one when it moves, if its template is good."""
    present = pod_identity.template_hash(inputs.controller)
    if inputs.sides is None or old is None or pod_identity.is_of(old, present):
        return None
    return inputs.sides.source
