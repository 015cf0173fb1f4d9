"""Short ways to write the objects that tests and benches are about.

Views are decoded from documents, so that a built object is exactly what a client would have read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from grange.api.kinds import NODE
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, Scalar
from grange.api.meta import Document
from grange.client.client import Client


def node_document(
    name: str,
    *,
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    capacity: Mapping[str, Scalar] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    provider_id: str = "",
) -> Document:
    """A node; 4 CPUs, 32Gi and 110 pods by default, with its hostname as a label."""
    marks = {"kubernetes.io/hostname": name, **(labels or {})}
    if zone:
        marks["topology.kubernetes.io/zone"] = zone
    amounts = dict(capacity or {"cpu": "4", "memory": "32Gi", "pods": "110"})
    spec: Document = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if unschedulable:
        spec["unschedulable"] = True
    if provider_id:
        spec["providerID"] = provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": marks},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def node(name: str, **options: Any) -> Node:
    """A node's view; options as for ``node_document``."""
    return msgspec.convert(node_document(name, **options), Node)


async def create_node(client: Client, name: str, **options: Any) -> None:
    """Create a node with its status, as if an agent lived on it; options as for ``node_document``.

    Raises:
        AlreadyExists: the name is taken.
    """
    document = node_document(name, **options)
    status = document.pop("status")
    await client.create(NODE, document)
    await client.patch(NODE, name, patch={"status": status}, subresource="status")


def pod_document(
    name: str,
    *,
    namespace: str = "default",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, Scalar] | None = None,
    host_ports: Sequence[int | tuple[str, str, int]] = (),
    **spec: Any,
) -> Document:
    """A pod of one container; further options are fields of its spec as on the wire."""
    container: Document = {"name": "main", "command": ["sleep", "1000"]}
    if requests is not None:
        container["resources"] = {"requests": dict(requests)}
    if host_ports:
        container["ports"] = [_port(item) for item in host_ports]
    metadata: Document = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    if uid:
        metadata["uid"] = uid
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "schedulerName": "default-scheduler", **spec},
    }


def pod(name: str, *, uid: str | None = None, **options: Any) -> Pod:
    """A pod's view, its UID ``uid-<name>`` by default; options as for ``pod_document``."""
    document = pod_document(name, uid=f"uid-{name}" if uid is None else uid, **options)
    return msgspec.convert(document, Pod)


def _port(item: int | tuple[str, str, int]) -> Document:
    if isinstance(item, int):
        return {"containerPort": 80, "hostPort": item}
    ip, protocol, number = item
    port: Document = {"containerPort": 80, "hostPort": number}
    if ip:
        port["hostIP"] = ip
    if protocol:
        port["protocol"] = protocol
    return port
