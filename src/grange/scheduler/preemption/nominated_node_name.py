"""Writes ``status.nominatedNodeName``: the node whose room is kept for a pod that preempts."""

from collections.abc import Callable

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import preconditions
from grange.api.status import Conflict
from grange.client.client import Client


async def write(client: Client, pod: Pod, node_name: str, is_wanted: Callable[[], bool]) -> None:
    """Write the nomination, or remove it (empty), unless the pod has a node by now.

    Raises:
        ApiError: it is not written; to be tried again.
    """
    meta = pod.metadata
    while True:
        live: Pod = await client.get(POD, meta.name, meta.namespace)
        is_written = live.status.nominated_node_name == node_name
        if live.metadata.uid != meta.uid or live.spec.node_name or is_written or not is_wanted():
            return
        patch = {
            "metadata": preconditions(live.metadata),
            "status": {"nominatedNodeName": node_name or None},
        }
        try:
            await client.patch(POD, meta.name, meta.namespace, patch=patch, subresource="status")
            return
        except Conflict:
            continue  # the pod was written in between
