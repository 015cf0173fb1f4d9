"""DefaultBinder: writes the pod's ``binding`` subresource."""

from grange.api.kinds import POD
from grange.client.client import Client
from grange.scheduler.framework import Plugin
from grange.scheduler.nodeinfo import PodInfo


class _Binding:
    async def bind(self, client: Client, pod: PodInfo, node_name: str) -> None:
        """One POST, fenced by the UID; the server refuses a pod that is bound already."""
        meta = pod.pod.metadata
        await client.post(
            POD,
            meta.name,
            meta.namespace,
            "binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
            },
        )


PLUGIN = Plugin("DefaultBinder", bind=_Binding())
