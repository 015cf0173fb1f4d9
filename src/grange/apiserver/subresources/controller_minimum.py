"""The minimum of a ReplicationController, for evictions of pods that no disruption budget covers.

The account is the controller's own: its status records each deletion of one of its pods before it
happens (``pendingDeletions``). An eviction is recorded there too, by compare-and-set on the version of
the controller that its pods were counted at. So an eviction and a pass of the controller, or two
evictions, never spend the same pod: the later one fails or counts the earlier one as gone. The controller
revokes what it finds recorded before it takes a pod itself; so the deletion that follows names the
version of the pod that is recorded.
"""

from collections.abc import Iterator
from datetime import datetime

from grange.api import codec, timestamps
from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER, pod as pods
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import PendingDeletion
from grange.api.meta import Document, controller_of
from grange.api.rollouts import limits
from grange.api.status import ApiError, BadRequest, Conflict, NotFound
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.apiserver.registry import Place, Registry, Rewrite
from grange.apiserver.write_options import WriteOptions
from grange.store.interface import Entry

_ATTEMPTS = 5


class EvictionRefused(Exception):
    """The minimum does not allow the eviction; the message gives the reason."""


async def charge(registry: Registry, document: Document, *, dry_run: bool) -> bool:
    """Record the deletion of a pod with its controller, if the minimum allows it.

    Args:
        registry: reads and writes.
        document: the pod; its version is recorded.
        dry_run: ask, and record nothing.

    Returns:
        Whether the pod counts for a minimum: it is deleted at this version then, or not at all.

    Raises:
        Refused: the minimum needs the pod, or the controller changes all the time.
        ApiError: the server cannot write.
    """
    pod = codec.convert(document, Pod)
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind != REPLICATIONCONTROLLER.kind:
        return False
    place = Place(REPLICATIONCONTROLLER, pod.metadata.namespace, owner.name)
    for _ in range(_ATTEMPTS):
        try:
            entry = registry.get(place)
        except NotFound:
            return False
        controller = codec.decode_view(entry.value, ReplicationController)
        if controller.metadata.uid != owner.uid or controller.metadata.deletion_timestamp:
            return False
        if not _is_available(pod, controller, registry.clock.now()):
            return False
        await _ask(registry, controller, pod)
        if dry_run or await _record(registry, place, controller, pod):
            return True
    raise EvictionRefused(f"The ReplicationController {owner.name} is changing.")


async def _ask(registry: Registry, controller: ReplicationController, pod: Pod) -> None:
    """Count the other pods that are available until there are enough.

    Raises:
        Refused: there are not.
    """
    spec, meta = controller.spec, controller.metadata
    # An eviction makes no pod in advance, so surge counts for nothing.
    minimum = limits(spec.rollout, spec.replicas, room=0).minimum
    if not minimum:
        return
    prefix = storage.prefix(POD, meta.namespace)
    entries = (await registry.store.list(prefix)).entries
    left = _others(registry, entries, controller, pod)
    found = sum(1 for _ in zip(range(minimum), left, strict=False))
    if found < minimum:
        raise EvictionRefused(
            f"The ReplicationController {meta.name} needs {minimum} available pods "
            f"and would have {found}; raise spec.rollout.maxUnavailable, or move its pods with "
            "`grange rc drain-node`"
        )


def _others(
    registry: Registry, entries: list[Entry], controller: ReplicationController, pod: Pod
) -> Iterator[Pod]:
    """The other pods of the controller that are available and stay so."""
    uid, now = controller.metadata.uid, registry.clock.now()
    going = {item.uid for item in controller.status.pending_deletions} | {pod.metadata.uid}
    nodes: dict[str, bool] = {}
    marker = uid.encode()
    for entry in entries:
        if marker not in entry.value:  # of 10,000 pods few are decoded
            continue
        try:
            other = codec.decode_view(entry.value, Pod)
        except BadRequest:
            continue
        owner, name = controller_of(other.metadata), other.spec.node_name
        if owner is None or owner.uid != uid or other.metadata.uid in going:
            continue
        if pods.is_disruption_target(other) or not _is_available(other, controller, now):
            continue
        if name not in nodes:
            nodes[name] = _is_up(registry, name)
        if nodes[name]:
            yield other


def _is_available(pod: Pod, controller: ReplicationController, now: datetime) -> bool:
    """Whether the pod has been ready for ``minReadySeconds``."""
    if not pods.is_ready(pod) or pods.is_finished(pod):
        return False
    needed_s = controller.spec.rollout.min_ready_seconds
    ready = pods.condition(pod, "Ready")
    if needed_s <= 0 or ready is None:
        return True
    since = timestamps.parse_or(ready.last_transition_time, now)
    return (now - since).total_seconds() >= needed_s


def _is_up(registry: Registry, name: str) -> bool:
    """Whether a node is ready: what is stored of the pods of another is stale."""
    try:
        node = codec.decode_view(registry.get(Place(NODE, "", name)).value, Node)
    except ApiError:
        return False
    return any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)


async def _record(
    registry: Registry, place: Place, controller: ReplicationController, pod: Pod
) -> bool:
    """Record the deletion at this version of the controller; False if it has another by now."""
    meta = pod.metadata
    new = PendingDeletion(meta.name, meta.uid, meta.resource_version)
    if new in controller.status.pending_deletions:
        return True
    item = {"pod": new.pod, "uid": new.uid, "resourceVersion": new.resource_version}

    def recorded(newest: Document) -> Document:
        status = newest.get("status") or {}
        pending = [*(status.get("pendingDeletions") or ()), item]
        return {**newest, "status": {**status, "pendingDeletions": pending}}

    attempt = Attributes("update", place.info, place.namespace, place.name)
    version = controller.metadata.resource_version
    rewrite = Rewrite(place, attempt, recorded, controller.metadata.uid, version)
    (outcome,) = await registry.rewrite([rewrite], WriteOptions())
    if isinstance(outcome, Conflict):
        return False
    if isinstance(outcome, ApiError):
        raise outcome
    return True
