"""Whether the volumes of pods are at their mount paths, or links below the root of each container."""

from collections.abc import Iterable
from ipaddress import ip_network

from grange.api.kinds.node import Node
from grange.api.pod_addresses import LOOPBACK


def mounts_are_links(nodes: Iterable[Node]) -> bool:
    """Whether pods are processes that share a file system: all nodes give loopback addresses."""
    found = [_gives_loopback_addresses(node) for node in nodes]
    return bool(found) and all(found)


def _gives_loopback_addresses(node: Node) -> bool:
    try:
        network = ip_network(node.spec.pod_cidr, strict=False)
    except ValueError:
        return False
    return network.version == LOOPBACK.version and network.subnet_of(LOOPBACK)
