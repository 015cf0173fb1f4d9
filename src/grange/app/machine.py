"""What this machine has, shared out between the nodes it is presented as."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from grange.agent.resolver_config import ResolverConfig, parse_resolver

_MIB = 1024 * 1024
_RESOLVER = Path("/etc/resolv.conf")
_NAME_MAX = 63 - len("-1000")  # a label, less the number of a share
MAX_PODS_PER_NODE = 110  # the field's usual limit


@dataclass(frozen=True, slots=True)
class Share:
    """One node's part of the machine.

    Attributes:
        name: the node's name.
        cpu_milli: thousandths of a core.
        memory_bytes: memory.
        pods: how many pods at most.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    pods: int = MAX_PODS_PER_NODE

    def capacity(self) -> dict[str, str]:
        """The share as node capacity."""
        return {
            "cpu": f"{self.cpu_milli}m",
            "memory": f"{self.memory_bytes // _MIB}Mi",
            "pods": str(self.pods),
        }


def node_name(host: str) -> str:
    """The host's name without its domain as a DNS label, with room left for a number."""
    label = host.split(".", maxsplit=1)[0].lower()
    label = "".join(char if char.isascii() and char.isalnum() else "-" for char in label)
    return label.strip("-")[:_NAME_MAX].rstrip("-") or "localhost"


def shares(nodes: int) -> list[Share]:
    """The machine in equal parts, named ``<host>-1`` and so on, however many there are."""
    host = node_name(platform.node())
    cpu_milli = len(os.sched_getaffinity(0)) * 1000 // nodes
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // nodes
    names = [f"{host}-{at}" for at in range(1, nodes + 1)]
    return [Share(name, cpu_milli, memory) for name in names]


def resolver() -> ResolverConfig:
    """How the machine resolves names; nothing where it has no such file."""
    try:
        return parse_resolver(_RESOLVER.read_text(errors="replace"))
    except OSError:
        return ResolverConfig()
