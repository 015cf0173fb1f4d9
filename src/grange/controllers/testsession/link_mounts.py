"""Whether the volumes of pods are at their mount paths, or links below the root of each container."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_network

from grange.api.kinds.node import Node
from grange.api.pod_addresses import LOOPBACK


def mounts_are_links(nodes: Iterable[Node]) -> bool:
    """Whether pods are processes that share a file system: all nodes give loopback addresses."""
    given = {node.spec.pod_cidr for node in nodes}
    return bool(given) and all(map(_is_loopback, given))


@lru_cache(maxsize=4096)
def _is_loopback(pod_cidr: str) -> bool:
    """Every reconcile of a session asks for all nodes, and to parse a network takes 25 µs."""
    try:
        network = ip_network(pod_cidr, strict=False)
    except ValueError:
        return False
    return network.version == LOOPBACK.version and network.subnet_of(LOOPBACK)
