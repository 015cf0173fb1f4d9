"""What tests look at in a snapshot and its entries, and no decision does."""

from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


def same(one: NodeInfo, other: NodeInfo) -> bool:
    """Whether both are equal, generation included."""
    names = [name for name in NodeInfo.__slots__ if name != "load"] + ["allocatable", "usage"]
    return all(getattr(one, name) == getattr(other, name) for name in names)


def with_affinity(snapshot: NodeInfoSnapshot) -> list[NodeInfo]:
    """Entries with pods that state any pod (anti-)affinity, in the order of the node tree."""
    return [info for info in snapshot.node_info_list if info.pods_with_affinity]


def with_required_anti_affinity(snapshot: NodeInfoSnapshot) -> list[NodeInfo]:
    """Entries with pods that require anti-affinity, in the order of the node tree."""
    return [info for info in snapshot.node_info_list if info.pods_with_required_anti_affinity]


def used_claims(snapshot: NodeInfoSnapshot) -> frozenset[str]:
    """Persistent volume claims in use, as ``namespace/name``."""
    return frozenset(
        claim for info in snapshot.node_info_list for pod in info.pods for claim in pod.claims
    )
