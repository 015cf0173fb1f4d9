"""Node: a machine, or a share of one, that runs pods."""

from typing import Any

import msgspec

from grange.api.kinds.pod import Scalar
from grange.api.meta import Condition, Resource, View


class Taint(View, frozen=True):
    """What keeps pods away unless they tolerate it."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(View, frozen=True):
    """What an operator or a controller decided about the node."""

    unschedulable: bool = False
    taints: list[Taint] = msgspec.field(default_factory=list)
    provider_id: str = msgspec.field(name="providerID", default="")
    pod_cidr: str = msgspec.field(name="podCIDR", default="")


class NodeAddress(View, frozen=True):
    """One address of the node."""

    type: str
    address: str


class ContainerImage(View, frozen=True):
    """An image that the node has."""

    names: list[str] = msgspec.field(default_factory=list)
    size_bytes: int = 0


class NodeStatus(View, frozen=True):
    """What the node's agent reports."""

    capacity: dict[str, Scalar] = msgspec.field(default_factory=dict)
    allocatable: dict[str, Scalar] = msgspec.field(default_factory=dict)
    conditions: list[Condition] = msgspec.field(default_factory=list)
    addresses: list[NodeAddress] = msgspec.field(default_factory=list)
    images: list[ContainerImage] = msgspec.field(default_factory=list)
    node_info: dict[str, Any] = msgspec.field(default_factory=dict)


class Node(Resource, frozen=True):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


def is_ready(node: Node) -> bool:
    """Whether the Ready condition is True."""
    return any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
