"""Reads pods and the Leases of their nodes from the server before available pods are deleted.

A watch that hangs shows pods as they were, and so does the server while agents cannot write to it. A
pod that has been ready for ``minReadySeconds`` therefore counts only when its node has reported since:
the Lease of a node says until when all that its agent knows of its pods is written. Both timestamps
are by the clock of the node.
"""

import math
from collections.abc import Sequence
from contextlib import suppress

from grange.api import timestamps
from grange.api.kinds import LEASE, POD, pod as pods
from grange.api.kinds.lease import NODE_LEASES, status_synced_until
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.status import NotFound
from grange.client.client import Client
from grange.controllers.shared import pod_identity
from grange.controllers.shared.availability import Readiness

_SINGLE = 20  # Leases of more nodes are read in one list


async def active_pods(client: Client, controller: ReplicationController) -> list[Pod]:
    """The controller's pods that are neither finished nor on their way out, as the server has them.

    Raises:
        ApiError: the server cannot be asked.
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
    """Those that had been ready for ``minReadySeconds`` when their node said last that it is alive.

    A node without a Lease has no agent that we know of; its pods are believed.

    Args:
        client: to the API.
        controller: whose pods they are.
        ready: pods that are ready now.
        readiness: remembers whose nodes were heard of; only others' Leases are read.

    Returns:
        UIDs.

    Raises:
        ApiError: the server cannot be asked.
    """
    needed_s = controller.spec.rollout.min_ready_seconds
    if needed_s <= 0 or not ready:
        return frozenset(pod.metadata.uid for pod in ready)
    doubtful = [pod for pod in ready if not readiness.is_vouched(pod)]
    heard = await _reported_until(client, {pod.spec.node_name for pod in doubtful})
    for pod in doubtful:
        if _ready_s(pod, heard.get(pod.spec.node_name)) >= needed_s:
            readiness.vouch(pod)
    return frozenset(pod.metadata.uid for pod in ready if readiness.is_vouched(pod))


async def _reported_until(client: Client, nodes: set[str]) -> dict[str, str | None]:
    """Until when nodes have told of their pods, by their clocks.

    Where a Lease does not say so, its renewal counts; a node without a Lease is left out.
    """
    if len(nodes) > _SINGLE:
        leases = (await client.list(LEASE, NODE_LEASES)).items
    else:
        leases = []
        for name in sorted(nodes):
            with suppress(NotFound):
                leases.append(await client.get(LEASE, name, NODE_LEASES))
    return {lease.metadata.name: status_synced_until(lease) for lease in leases}


def _ready_s(pod: Pod, heard: str | None) -> float:
    """Seconds for which a pod had been ready at a moment by the clock of its node."""
    ready = pods.condition(pod, "Ready")
    if not heard or ready is None or not ready.last_transition_time:
        return math.inf
    try:
        since = timestamps.parse(ready.last_transition_time)
        return (timestamps.parse(heard) - since).total_seconds()
    except timestamps.TimestampError:
        return 0.0
