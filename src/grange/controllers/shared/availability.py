"""Which pods count as available: ready for ``minReadySeconds``, on a Ready node; and why others do not.

Timestamps of a pod's conditions are by the clock of its node, which may be wrong. So the time for which this
process has seen a pod ready counts by its own clock. The timestamp of a pod that was ready when it was first
seen (the process has just started) counts if it is older than required by more than clocks differ.

Before an available pod is deleted, pods are read from the server: a watch that hangs shows them as they were.
So does the server while agents cannot write to it. A pod that has been ready for ``minReadySeconds`` therefore
counts only if its node has reported since: the Lease of a node states until when everything that its agent knows
of its pods is written.
"""

import math
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds import LEASE, POD, node as nodes, pod as pods
from grange.api.kinds.lease import NODE_LEASES, status_synced_until
from grange.api.kinds.node import Node
from grange.api.kinds.pod import ContainerStateTerminated, ContainerStatus, Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.client.client import Client
from grange.controllers.shared import deletion_order, pod_identity
from grange.reconcile.indexer import Indexer
from grange.reconcile.informer import Informer

SKEW_S = 60.0
"""Clocks of nodes are taken to be right within so many seconds."""


class Readiness:
    """Tracks, by pod, since when it is ready; fed by the handlers of the pod informer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, bool]] = {}
        self._live_checked: dict[str, str | None] = {}

    def watch(self, informer: Informer[Pod]) -> None:
        """Follow the pods of an informer."""
        informer.add_handler(self.appeared, self.changed, self.gone)

    def appeared(self, pod: Pod) -> None:
        """A pod is in the lister for the first time."""
        if pods.is_ready(pod):
            self._since.setdefault(pod.metadata.uid, (self._clock.monotonic(), False))

    def changed(self, old: Pod, new: Pod) -> None:
        """A pod has changed in the lister."""
        if not pods.is_ready(new):
            self._since.pop(new.metadata.uid, None)
        elif old.metadata.uid != new.metadata.uid or _since(old) != _since(new):
            # Also ready, not ready and ready again, coalesced by the watch.
            self._since[new.metadata.uid] = (self._clock.monotonic(), True)

    def gone(self, pod: Pod) -> None:
        """A pod is gone from the lister."""
        self._since.pop(pod.metadata.uid, None)
        self._live_checked.pop(pod.metadata.uid, None)

    def mark_live_checked(self, pod: Pod) -> None:
        """Note that the pod's node reported when the pod had been ready for long enough."""
        if pod.metadata.uid in self._since:
            self._live_checked[pod.metadata.uid] = _since(pod)

    def is_live_checked(self, pod: Pod) -> bool:
        """Whether its node reported so, and the pod has been ready since."""
        return (since := _since(pod)) is not None and self._live_checked.get(
            pod.metadata.uid
        ) == since

    def wait_s(self, pod: Pod, needed_s: float, age_s: float) -> float:
        """Seconds until a ready pod has been ready for long enough; zero if it has.

        ``age_s`` is how long it has been ready by its timestamp.
        """
        now = self._clock.monotonic()
        since, witnessed = self._since.get(pod.metadata.uid, (now, False))
        if not witnessed and age_s >= needed_s + SKEW_S:
            return 0.0
        return max(0.0, needed_s - (now - since))


def _since(pod: Pod) -> str | None:
    """The timestamp of a ready pod; None for one that is not ready."""
    ready = pods.condition(pod, "Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else None


def nodes_down(nodes_: Indexer[Node], pods_: Iterable[Pod]) -> frozenset[str]:
    """Names of the nodes of pods that are gone or not Ready: the status of these pods is stale."""
    names = {pod.spec.node_name for pod in pods_} - {""}
    known = {name: nodes_.get(ObjectKey("", name)) for name in names}
    return frozenset(
        name for name, node in known.items() if node is None or not nodes.is_ready(node)
    )


@dataclass(frozen=True, slots=True)
class PodAvailability:
    """What is known of pods.

    Attributes:
        available: uids of those that have been ready for ``minReadySeconds``.
        ready: how many are ready.
        next_available_s: seconds until the next ready one counts as available; None for none.
    """

    available: frozenset[str] = frozenset()
    ready: int = 0
    next_available_s: float | None = None


def wait_for_available(
    controller: ReplicationController,
    pod: Pod,
    now: datetime,
    readiness: Readiness | None = None,
) -> float:
    """Seconds until a pod that is ready counts as available; zero if it does.

    Without ``readiness`` (our own clock) its timestamp counts.
    """
    needed = controller.spec.rollout.min_ready_seconds
    if needed <= 0:
        return 0.0
    ready = pods.condition(pod, "Ready")
    if ready is None or not ready.last_transition_time:
        return needed
    age_s = (now - timestamps.parse_or(ready.last_transition_time, now)).total_seconds()
    if readiness is not None:
        return readiness.wait_s(pod, needed, age_s)
    return max(0.0, needed - age_s)


def observe(
    controller: ReplicationController,
    active: Iterable[Pod],
    down: Container[str],
    now: datetime,
    readiness: Readiness | None = None,
) -> PodAvailability:
    """The availability of the active pods of a controller.

    The status of pods on nodes that are down (gone or not ready) is stale. Without ``readiness`` (our own clock) the
    pods' timestamps count.
    """
    available: set[str] = set()
    waits: list[float] = []
    ready = 0
    for pod in active:
        if not deletion_order.is_ready(pod, down):
            continue
        ready += 1
        wait = wait_for_available(controller, pod, now, readiness)
        if wait > 0.0:
            waits.append(wait)
        else:
            available.add(pod.metadata.uid)
    return PodAvailability(frozenset(available), ready, min(waits, default=None))


_SINGLE = 20  # Leases of more nodes are read in one list


async def active_pods(client: Client, controller: ReplicationController) -> list[Pod]:
    """The controller's pods that are neither finished nor terminating, as the server has them.

    Raises:
        ApiError: the server does not answer.
    """
    meta = controller.metadata
    mark = f"{pod_identity.RC_ID_LABEL}={meta.uid}"
    listed = (await client.list(POD, meta.namespace, labels=mark)).items
    return [pod for pod in listed if pods.is_active(pod)]


async def reported_ready(
    client: Client,
    controller: ReplicationController,
    ready: Sequence[Pod],
    readiness: Readiness,
) -> frozenset[str]:
    """Uids of those that had been ready for ``minReadySeconds`` when their node last reported.

    A node without a Lease has no known agent; the status of its pods counts. Only Leases are read of nodes that have
    not reported so before.

    Raises:
        ApiError: the server does not answer.
    """
    needed_s = controller.spec.rollout.min_ready_seconds
    if needed_s <= 0 or not ready:
        return frozenset(pod.metadata.uid for pod in ready)
    doubtful = [pod for pod in ready if not readiness.is_live_checked(pod)]
    reported = await _reported_until(client, {pod.spec.node_name for pod in doubtful})
    for pod in doubtful:
        if _ready_s(pod, reported.get(pod.spec.node_name)) >= needed_s:
            readiness.mark_live_checked(pod)
    return frozenset(pod.metadata.uid for pod in ready if readiness.is_live_checked(pod))


async def _reported_until(client: Client, nodes: set[str]) -> dict[str, str | None]:
    """Until when nodes have reported the status of their pods, by their clocks.

    Without that annotation the renewal of the Lease counts; nodes without a Lease are left out.
    """
    if len(nodes) > _SINGLE:
        leases = (await client.list(LEASE, NODE_LEASES)).items
    else:
        leases = []
        for name in sorted(nodes):
            with suppress(NotFound):
                leases.append(await client.get(LEASE, name, NODE_LEASES))
    return {lease.metadata.name: status_synced_until(lease) for lease in leases}


def _ready_s(pod: Pod, reported: str | None) -> float:
    """Seconds for which a pod had been ready at a time, by the clock of its node."""
    ready = pods.condition(pod, "Ready")
    if not reported or ready is None or not ready.last_transition_time:
        return math.inf
    try:
        since = timestamps.parse(ready.last_transition_time)
        return (timestamps.parse(reported) - since).total_seconds()
    except timestamps.TimestampError:
        return 0.0


_LONGEST_MESSAGE = 200  # characters; the message is part of a status, an event and an alert


def failure_message(pods_: Iterable[Pod]) -> str:
    """Why pods are not available: the message of the first, by name, that has one; empty for none.

    The pods are gone after a rollback, so their message is copied.
    """
    for pod in sorted(pods_, key=lambda item: item.metadata.name):
        if text := _message_of(pod):
            return f"{pod.metadata.name}: {text}"
    return ""


def _message_of(pod: Pod) -> str:
    status = pod.status
    for item in (*status.init_container_statuses, *status.container_statuses):
        if text := _of_container(item):
            return f"{item.name}: {_short(text)}"
    for kind in ("PodScheduled", "Ready"):
        for condition in status.conditions:
            if condition.type == kind and condition.status == "False" and condition.message:
                return _short(condition.message)
    return ""


def _short(text: str) -> str:
    """One line of it."""
    return " ".join(text.split())[:_LONGEST_MESSAGE]


def _of_container(item: ContainerStatus) -> str:
    """Why it waits, by how it ended last where it did; nothing for one that runs or did its work."""
    waiting = item.state.waiting
    ended = item.state.terminated or (item.last_state.terminated if waiting else None)
    if ended is not None and (waiting is not None or ended.exit_code or ended.signal):
        return _ending(ended)
    return (waiting.message or waiting.reason) if waiting is not None else ""


def _ending(ended: ContainerStateTerminated) -> str:
    if ended.message:
        return ended.message
    how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    return f"ended with {how}"
