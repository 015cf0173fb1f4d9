"""Node transfers: a pod moves to another node by coming up there first. Pure; ``now`` is given.

Theory of operation. A transfer is stored in the controller's status, so it survives its owner. Its phases
are a state machine (``TRANSITIONS``); its events are derived from pods and nodes (``happened``), and a
phase is stored before anything is done in it. After a crash the next owner repeats what the phase
requires (everything is idempotent: allocation by request id, creation by name, deletion by uid).

The rest of the controller sees only one of the pods of a transfer: the old one until the new one is
available, then the new one. ``hidden`` is that view; ``is_needed`` protects pods from being deleted as surplus.
If the new pod fails again before the old one is deleted, it is rolled back after the deadline.

Source of the order of steps: the make-before-break transfer of spec/replication §4a.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace as changed

from grange.api import rollouts, timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import NodeTransfer, TransferBackoff
from grange.api.replication import pods_to_remove
from grange.api.timestamps import TimestampError
from grange.base.backoff import Exponential
from grange.controllers.replication import rollout
from grange.controllers.replication.plan import Addition, Inputs, Plan, Removal
from grange.controllers.shared import deletion_order, pod_identity


class TransferPhase(StrEnum):
    """Where a transfer is.

    ``ALLOCATING``: it needs a node. ``STARTING``: the new pod is created and must become available.
    ``FINISHING``: the old pod is deleted, and its node is released. ``ROLLING_BACK``: the new pod is deleted,
    and what was allocated for it is released. ``DONE`` is never stored: the transfer is dropped.
    """

    ALLOCATING = "Allocating"
    STARTING = "Starting"
    FINISHING = "Finishing"
    ROLLING_BACK = "RollingBack"
    DONE = "Done"


class TransferEvent(StrEnum):
    """What can happen to a transfer."""

    FOUND = "a node is found"
    CALLED_OFF = "the old pod may stay or is gone"
    AVAILABLE = "the new pod is available"
    OLD_GONE = "the old pod is gone"
    NEW_LOST = "the new node is no longer eligible"
    EXPIRED = "the deadline has passed"
    RELAPSED = "the deadline has passed and the new pod is not available any more"
    RELEASED = "the pod is gone and its node is released"


TRANSITIONS: Mapping[tuple[TransferPhase, TransferEvent], TransferPhase] = {
    (TransferPhase.ALLOCATING, TransferEvent.FOUND): TransferPhase.STARTING,
    (TransferPhase.ALLOCATING, TransferEvent.CALLED_OFF): TransferPhase.ROLLING_BACK,
    (TransferPhase.ALLOCATING, TransferEvent.EXPIRED): TransferPhase.ROLLING_BACK,
    (TransferPhase.STARTING, TransferEvent.AVAILABLE): TransferPhase.FINISHING,
    (TransferPhase.STARTING, TransferEvent.OLD_GONE): TransferPhase.FINISHING,
    (TransferPhase.STARTING, TransferEvent.CALLED_OFF): TransferPhase.ROLLING_BACK,
    (TransferPhase.STARTING, TransferEvent.NEW_LOST): TransferPhase.ROLLING_BACK,
    (TransferPhase.STARTING, TransferEvent.EXPIRED): TransferPhase.ROLLING_BACK,
    (TransferPhase.FINISHING, TransferEvent.RELAPSED): TransferPhase.ROLLING_BACK,
    (TransferPhase.FINISHING, TransferEvent.RELEASED): TransferPhase.DONE,
    (TransferPhase.ROLLING_BACK, TransferEvent.RELEASED): TransferPhase.DONE,
}
"""The state machine; other events are ignored."""


_BEFORE_SWITCH = frozenset(
    {TransferPhase.ALLOCATING, TransferPhase.STARTING, TransferPhase.ROLLING_BACK}
)


def phase_of(transfer: NodeTransfer) -> TransferPhase:
    """Its phase; an unknown one is rolled back."""
    try:
        return TransferPhase(transfer.phase)
    except ValueError:
        return TransferPhase.ROLLING_BACK


def step(transfer: NodeTransfer, event: TransferEvent) -> NodeTransfer | None:
    """The transfer after an event; unchanged if the event is ignored, None if it has ended."""
    phase = TRANSITIONS.get((phase_of(transfer), event))
    if phase is None:
        return transfer
    if phase is TransferPhase.DONE:
        return None
    reason = event.value if phase is TransferPhase.ROLLING_BACK else ""
    return changed(transfer, phase=phase.value, reason=reason)


def deadline_of(transfer: NodeTransfer) -> datetime:
    """When the current phase expires; long ago where the text is no time (edited by a user)."""
    return timestamps.parse_or(transfer.deadline, timestamps.EPOCH)


def happened(
    transfer: NodeTransfer, inputs: Inputs, drained: Collection[str], now: datetime
) -> TransferEvent | None:
    """The event that applies to a transfer, releases excepted; the first that holds.

    The inputs have all pods of the controller; a user drains the drained nodes for it.
    """
    phase = phase_of(transfer)
    old = old_pod(transfer, inputs.owned)
    old_gone = old is None or not pods.is_active(old)
    expired = now >= deadline_of(transfer)
    if phase is TransferPhase.ALLOCATING:
        stays = transfer.old in inputs.nodes_for(old) and transfer.old not in drained
        if old_gone or stays:
            return TransferEvent.CALLED_OFF
        return TransferEvent.EXPIRED if expired else None
    if phase is TransferPhase.STARTING:
        new = new_pod(transfer, inputs.owned)
        if new is not None and is_available(inputs, new):
            return TransferEvent.AVAILABLE
        if old_gone:
            return TransferEvent.CALLED_OFF if new is None else TransferEvent.OLD_GONE
        node = transfer.new if new is None else pod_identity.node_of(new)
        expected = new is None and transfer.allocated  # a machine may be on its way
        if node and node not in inputs.nodes_for(new or old) and not expected:
            return TransferEvent.NEW_LOST
        return TransferEvent.EXPIRED if expired else None
    if phase is TransferPhase.FINISHING and expired and old is not None:
        # The budget may need an available old pod while the new one fails.
        new = new_pod(transfer, inputs.owned)
        relapsed = new is None or not is_available(inputs, new)
        return TransferEvent.RELAPSED if relapsed and is_available(inputs, old) else None
    return None


def is_available(inputs: Inputs, pod: Pod) -> bool:
    """Whether a pod is active and available."""
    return pods.is_active(pod) and pod.metadata.uid in inputs.available


def new_pod(transfer: NodeTransfer, owned: Iterable[Pod]) -> Pod | None:
    """The pod that a transfer created, if it exists."""
    if not transfer.new_pod:
        return None
    return next((pod for pod in owned if pod.metadata.name == transfer.new_pod), None)


def with_new_node(transfer: NodeTransfer, owned: Iterable[Pod]) -> NodeTransfer:
    """The transfer with the node of its new pod, also if the scheduler chose it."""
    new = None if transfer.new else new_pod(transfer, owned)
    return transfer if new is None else changed(transfer, new=pod_identity.node_of(new))


def old_pod(transfer: NodeTransfer, owned: Iterable[Pod]) -> Pod | None:
    """The pod that a transfer replaces, if it still exists."""
    return next((pod for pod in owned if pod.metadata.uid == transfer.old_uid), None)


# --- which pods move ---------------------------------------------------------------------------


def misplaced(inputs: Inputs) -> list[Pod]:
    """Active pods that are bound to a node that is not eligible, in order of node and name."""
    found = [
        pod
        for pod in inputs.owned
        if pods.is_active(pod)
        and pod.spec.node_name
        and pod.spec.node_name not in inputs.nodes_for(pod)
    ]
    return sorted(found, key=lambda pod: (pod.spec.node_name, pod.metadata.name))


def going(inputs: Inputs) -> frozenset[str]:
    """Uids of the pods that will be deleted in any case: surplus ones, and those marked for deletion.

    The inputs have the pods that count, see ``hidden``. The surge of a rollout is no surplus: each side has its
    stored count.
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
    return frozenset(pod.metadata.uid for pod in excess) | pods_to_remove(controller)


def at_once(controller: ReplicationController) -> int:
    """How many transfers may be in progress: each has an additional pod, as ``maxSurge`` allows.

    One is always allowed, or a controller without surge could never leave a node.
    """
    spec = controller.spec
    return max(1, rollouts.share(spec.rollout.max_surge, spec.replicas, up=True))


def begin(
    controller: ReplicationController, pod: Pod, *, transfer_id: str, now: datetime
) -> NodeTransfer:
    """A new transfer, to be stored before anything is done for it."""
    limit = timedelta(seconds=controller.spec.rollout.progress_deadline_seconds)
    return NodeTransfer(
        id=transfer_id,
        phase=TransferPhase.ALLOCATING.value,
        old=pod.spec.node_name,
        old_pod=pod.metadata.name,
        old_uid=pod.metadata.uid,
        started_at=timestamps.rfc3339(now),
        deadline=timestamps.rfc3339(now + limit),
    )


def spare_node(
    inputs: Inputs,
    transfers: Sequence[NodeTransfer],
    avoid: Collection[str],
    pod: Pod | None = None,
) -> str | None:
    """A node for a pod's successor, without a pod of the controller and not reserved by a transfer.

    The first by name; nodes without room come later, and those of failed transfers last.
    """
    promised = {transfer.new for transfer in transfers}
    used = {pod_identity.node_of(pod) for pod in inputs.owned}
    places = inputs.nodes_for(pod)
    free = [node for node in places if node not in promised and node not in used]
    return min(free, key=lambda node: (node in avoid, node in inputs.full, node), default=None)


def found(
    transfer: NodeTransfer,
    node: str,
    inputs: Inputs,
    transfers: Sequence[NodeTransfer],
    *,
    allocated: bool,
) -> NodeTransfer:
    """The transfer once it has a node (empty: the scheduler chooses) and the name of its pod.

    ``transfers`` are all, with what they reserved in this reconcile.
    """
    controller = inputs.controller
    if node:
        name = pod_identity.name_for_node(controller, node, inputs.taken)
    else:
        ours = {pod.metadata.name for pod in inputs.owned}
        ours |= {other.new_pod for other in transfers}
        names = pod_identity.ordinal_names(controller, inputs.taken)
        name = next(name for name in names if name not in ours)
    after = step(transfer, TransferEvent.FOUND)
    return changed(after or transfer, new=node, new_pod=name, allocated=allocated)


# --- what the rest of the controller sees ------------------------------------------------------


def hidden(inputs: Inputs, transfers: Sequence[NodeTransfer]) -> Inputs:
    """The inputs without the pods that do not count and the nodes that are reserved."""
    if not transfers:
        return inputs
    names = {item.new_pod for item in transfers if phase_of(item) in _BEFORE_SWITCH}
    nodes = {item.new for item in transfers if phase_of(item) in _BEFORE_SWITCH}
    uids = {item.old_uid for item in transfers if phase_of(item) is TransferPhase.FINISHING}
    uncounted = [
        pod for pod in inputs.owned if pod.metadata.name in names or pod.metadata.uid in uids
    ]
    return inputs.without(nodes).hiding(uncounted, names)


def without_given_up(inputs: Inputs, transfers: Sequence[NodeTransfer]) -> Inputs:
    """The inputs in which the pods of transfers that are rolled back are not available."""
    names = {item.new_pod for item in transfers if phase_of(item) is TransferPhase.ROLLING_BACK}
    going = {pod.metadata.uid for pod in inputs.owned if pod.metadata.name in names}
    return replace(inputs, available=inputs.available - going)


def is_needed(pod: Pod, transfers: Iterable[NodeTransfer]) -> bool:
    """Whether a transfer needs a pod, which is then not deleted as surplus (unless it is finished).

    It needs the old pod until the new one is available, and the new one from then on.
    """
    return any(
        item.old_uid == pod.metadata.uid
        if phase_of(item) in _BEFORE_SWITCH
        else item.new_pod == pod.metadata.name
        for item in transfers
    )


def transfer_pods(inputs: Inputs, transfers: Sequence[NodeTransfer]) -> Plan:
    """The plan of the pods that stored transfers create and delete; none for a controller that is being deleted.

    The inputs have all pods of the controller.
    """
    if inputs.controller.metadata.deletion_timestamp:
        return Plan()
    create: list[Addition] = []
    delete: list[Removal] = []
    for item in transfers:
        new, old = new_pod(item, inputs.owned), old_pod(item, inputs.owned)
        match phase_of(item):
            case TransferPhase.STARTING if new is None and item.new in {"", *inputs.nodes_for(old)}:
                create.append(Addition(item.new_pod, item.new, _source(inputs, old)))
            case TransferPhase.FINISHING if old and not old.metadata.deletion_timestamp:
                delete.append(Removal(old, "Transferred"))
            case TransferPhase.ROLLING_BACK if new and not new.metadata.deletion_timestamp:
                delete.append(Removal(new, "TransferRolledBack"))
    return Plan(tuple(create), tuple(delete))


def _source(inputs: Inputs, old: Pod | None) -> ReplicationController | None:
    """The source of a pod of a rollout's old side, which keeps its template when it moves."""
    present = pod_identity.template_hash(inputs.controller)
    if inputs.sides is None or old is None or pod_identity.is_of(old, present):
        return None
    return inputs.sides.source


_AFTER_FAILURE = Exponential(initial_s=30.0, cap_s=600.0)
_AVOIDED = 8  # nodes to avoid in one entry


def backed_off(before: TransferBackoff, new: str, now: datetime) -> TransferBackoff:
    """The back-off of a node after one more failure; ``new`` is where the pod was to go, empty if unknown."""
    attempts = before.attempts + 1
    avoid = [name for name in before.avoid if name != new]
    return changed(
        before,
        attempts=attempts,
        until=timestamps.rfc3339(now + timedelta(seconds=_AFTER_FAILURE.delay(attempts))),
        avoid=tuple([*avoid, new][-_AVOIDED:] if new else avoid),
    )


def backoff_left_s(item: TransferBackoff, now: datetime) -> float:
    """Seconds until the next attempt, by our clock; at most the cap of the back-off."""
    try:
        until = timestamps.parse(item.until)
    except TimestampError:
        return 0.0  # nothing has failed, or it was edited by a user
    return min(_AFTER_FAILURE.cap_s, max(0.0, (until - now).total_seconds()))
