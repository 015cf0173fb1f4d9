"""The machines of each pool as the labels and marks of nodes have them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from grange.api.kinds import POD
from grange.api.kinds.machine import DISRUPTED_TAINT_KEY
from grange.api.kinds.machinelease import (
    DIRTY,
    HOLDER_ANNOTATION,
    MACHINE_LEASE,
    POOL_LABEL,
    STATE_ANNOTATION,
    foreign_pods,
    pool_of,
)
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import PACKED, NodePool
from grange.api.kinds.pod import Pod
from grange.api.status import Expired, Forbidden
from grange.base.first_few import first_few
from grange.cli.session import ApiSession

FREE = "free"
BUSY = "busy"
UNUSABLE = "unusable"
PODS_UNREAD = (
    "pods of all namespaces cannot be read: machines that are busy with pods count as free"
)
REMEDY = "delete these pods, move them (grange rc drain-node NAME NODE), or wait"

_LIVE_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_SHOWN = 3
_PAGE = 500  # as kubectl reads collections
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class PoolCounts:
    """The machines of one pool, counted.

    Attributes:
        name: value of the node label ``pool``.
        nodes: all of them.
        free: can be leased now.
        leased: someone has them.
        busy: no lease has them, and pods without a lease run there, so that none can get them.
        dirty: released, and not clean yet.
        unusable: neither leased nor dirty, and cordoned, not ready or about to be taken away.
        holders: who has machines, with how many, in the order of the nodes.
        pods: one for each busy machine, in the order of the nodes.
    """

    name: str
    nodes: int = 0
    free: int = 0
    leased: int = 0
    busy: int = 0
    dirty: int = 0
    unusable: int = 0
    holders: dict[str, int] = field(default_factory=dict)
    pods: list[str] = field(default_factory=list)

    def add(self, node: Node, pod: str = "") -> None:
        """Count a node.

        Args:
            node: of the pool.
            pod: one that keeps leases from it; empty for none.
        """
        meta = node.metadata
        self.nodes += 1
        match state(node, pod):
            case "dirty":
                self.dirty += 1
            case "leased":
                self.leased += 1
                holder = meta.annotations.get(HOLDER_ANNOTATION) or meta.labels[MACHINE_LEASE]
                self.holders[holder] = self.holders.get(holder, 0) + 1
            case "busy":
                self.busy += 1
                self.pods.append(pod)
            case "free":
                self.free += 1
            case _:
                self.unusable += 1


def state(node: Node, pod: str) -> str:
    """What the machine of a node is to leases: ``free``, ``leased``, ``busy``, ``dirty`` or ``unusable``.

    Args:
        node: of a pool.
        pod: one that keeps leases from it; empty for none.
    """
    if node.metadata.annotations.get(STATE_ANNOTATION) == DIRTY:
        return "dirty"
    if MACHINE_LEASE in node.metadata.labels:
        return "leased"
    if not _is_usable(node):
        return UNUSABLE
    return BUSY if pod else FREE


def pods_by_node(pods: Iterable[Pod]) -> dict[str, str]:
    """One pod of each node that keeps leases from it, by the node's name."""
    found: dict[str, str] = {}
    for pod in foreign_pods(pods, ""):
        if pod.spec.node_name:
            found.setdefault(pod.spec.node_name, f"{pod.metadata.namespace}/{pod.metadata.name}")
    return found


async def keepers(
    opened: ApiSession, nodes: Collection[Node], *, page: int = _PAGE
) -> dict[str, str] | None:
    """One pod of each machine that keeps leases from it; None where the user may not see pods.

    Pods are read page by page, and no further than until no machine could be free: a request for each
    node would have a server that has no index of pods by node read all of them for each.

    Args:
        opened: the server.
        nodes: whose pods are looked for, as far as they could be free without them.
        page: pods in one request, at most.
    """
    free = {node.metadata.name for node in nodes if pool_of(node) and state(node, "") == FREE}
    found: dict[str, str] = {}
    following = ""
    while free:
        try:
            listed = await opened.client.list(POD, fields=_LIVE_PODS, limit=page, cont=following)
        except Forbidden:
            return None
        except Expired:  # the server does not keep what it began with: the next list is a new one
            following = ""
            continue
        for name, pod in pods_by_node(listed.items).items():
            if name in free:
                free.discard(name)
                found[name] = pod
        following = listed.next
        if not following:
            break
    return found


def counts(
    nodes: Iterable[Node],
    node_pools: Iterable[NodePool] = (),
    pods: Mapping[str, str] = _NONE,
) -> list[PoolCounts]:
    """The pools by name; nodes without a pool are left out.

    Args:
        nodes: of the cluster.
        node_pools: of the cluster; a pool that a packed one makes machines for may have none at times.
        pods: one of each node that keeps leases from it, by the node's name.
    """
    found: dict[str, PoolCounts] = {}
    for pool in node_pools:
        if pool.spec.mode == PACKED and (name := pool.spec.template.labels.get(POOL_LABEL, "")):
            found[name] = PoolCounts(name)
    for node in sorted(nodes, key=lambda item: item.metadata.name):
        if name := pool_of(node):
            found.setdefault(name, PoolCounts(name)).add(node, pods.get(node.metadata.name, ""))
    return [found[name] for name in sorted(found)]


def busy_text(pool: PoolCounts) -> str:
    """How many machines are busy, with which pods, and what to do about it."""
    return f"{pool.busy} busy with pods {first_few(pool.pods, _SHOWN)}; {REMEDY}"


def _is_usable(node: Node) -> bool:
    ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
    goes = any(taint.key == DISRUPTED_TAINT_KEY for taint in node.spec.taints)
    closed = goes or node.spec.unschedulable
    return ready and not closed and node.metadata.deletion_timestamp is None
