"""Node: a machine, or a share of one, that runs pods."""

from collections.abc import Callable
from typing import Any

import msgspec

from grange.api.kinds.pod import Scalar
from grange.api.meta import Condition, Document, Resource, View
from grange.api.pod_fields import ISOLATION_LABEL
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.resources import check_amounts
from grange.api.validation.scheduling import check_taint

_ROLE_PREFIX = "node-role.kubernetes.io/"


class Taint(View, frozen=True):
    """What keeps pods away unless they tolerate it."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(View, frozen=True):
    """What an operator or a controller decided about the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")
    pod_cidr: str = msgspec.field(name="podCIDR", default="")


class NodeAddress(View, frozen=True):
    """A name or an IP address by which the node is reached."""

    type: str
    address: str


class ContainerImage(View, frozen=True):
    """An image that the node has."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class DaemonEndpoint(View, frozen=True):
    """Where a program of the node listens."""

    port: int = msgspec.field(name="Port", default=0)


class NodeDaemonEndpoints(View, frozen=True):
    """Where the programs of the node listen."""

    kubelet_endpoint: DaemonEndpoint = msgspec.field(default_factory=DaemonEndpoint)


class NodeStatus(View, frozen=True):
    """What the node's agent reports."""

    capacity: dict[str, Scalar] = msgspec.field(default_factory=dict)
    allocatable: dict[str, Scalar] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = msgspec.field(default_factory=NodeDaemonEndpoints)
    images: tuple[ContainerImage, ...] = ()
    node_info: dict[str, Any] = msgspec.field(default_factory=dict)
    declared_features: tuple[str, ...] = ()


class Node(Resource, frozen=True):
    """A machine that runs pods."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


def is_ready(node: Node) -> bool:
    """Whether the Ready condition is True."""
    return any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)


def address_of(node: Node) -> str:
    """The address by which other machines reach the node; empty if it has none."""
    found = {item.type: item.address for item in reversed(node.status.addresses)}
    return found.get("InternalIP") or found.get("ExternalIP") or ""


def _default(document: Document) -> None:
    document["spec"] = document.get("spec") or {}
    status = document["status"] = document.get("status") or {}
    # What can be had is all there is, unless something is set aside.
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    taken: set[tuple[str, str]] = set()
    for index, taint in enumerate((document.get("spec") or {}).get("taints") or ()):
        at = f"spec.taints[{index}]"
        check_taint(taint, at, faults)
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity in taken:
            faults.duplicate(at, f"{identity[0]}:{identity[1]}")
        taken.add(identity)
    status = document.get("status") or {}
    for field in ("capacity", "allocatable"):
        if amounts := status.get(field):
            check_amounts(amounts, f"status.{field}", faults)
    return faults.causes


def _status(document: Document, now: float) -> cells.Cell:
    words = ["Unknown"]
    for item in (document.get("status") or {}).get("conditions") or ():
        if item.get("type") == "Ready":
            words = ["Ready" if item.get("status") == "True" else "NotReady"]
    if (document.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(document: Document, now: float) -> cells.Cell:
    roles = set()
    for key, value in ((document.get("metadata") or {}).get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and len(key) > len(_ROLE_PREFIX):
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) if roles else cells.NONE


def _isolation(document: Document, now: float) -> cells.Cell:
    labels = (document.get("metadata") or {}).get("labels") or {}
    return str(labels.get(ISOLATION_LABEL) or cells.NONE)


def _address(kind: str) -> Callable[[Document, float], cells.Cell]:
    def cell(document: Document, now: float) -> cells.Cell:
        for item in (document.get("status") or {}).get("addresses") or ():
            if item.get("type") == kind:
                return str(item.get("address") or cells.NONE)
        return cells.NONE

    return cell


def _unschedulable(document: Document) -> str:
    return "true" if (document.get("spec") or {}).get("unschedulable") else "false"


_INFO = "status.nodeInfo"

NODE = KindInfo(
    group="",
    version="v1",
    kind="Node",
    plural="nodes",
    view=Node,
    schema="io.k8s.api.core.v1.Node",
    namespaced=False,
    short_names=("no",),
    columns=(
        Column("Status", _status, description="Whether it is ready and takes pods."),
        Column("Roles", _roles, description="From its labels."),
        Column("Age", cells.age, description="Since it joined."),
        Column("Version", cells.text(f"{_INFO}.kubeletVersion", ""), description="Of its agent."),
        Column("Isolation", _isolation, description="What separates its pods."),
        Column("Internal-IP", _address("InternalIP"), description="Inside address.", priority=1),
        Column("External-IP", _address("ExternalIP"), description="Outside address.", priority=1),
        Column(
            "OS-Image", cells.text(f"{_INFO}.osImage", cells.UNKNOWN), description="OS.", priority=1
        ),
        Column(
            "Kernel-Version",
            cells.text(f"{_INFO}.kernelVersion", cells.UNKNOWN),
            description="Kernel.",
            priority=1,
        ),
        Column(
            "Container-Runtime",
            cells.text(f"{_INFO}.containerRuntimeVersion", cells.UNKNOWN),
            description="What runs the pods.",
            priority=1,
        ),
    ),
    fields={"spec.unschedulable": _unschedulable},
    default=_default,
    validate=_validate,
)
