"""What this machine has, shared out between the nodes it is presented as."""

import os
import platform
from dataclasses import dataclass

_MIB = 1024 * 1024
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


def shares(nodes: int) -> list[Share]:
    """The machine in equal parts, named ``<host>-1`` … or ``<host>`` for a single one."""
    host = platform.node().split(".")[0].lower() or "localhost"
    host = "".join(char if char.isalnum() or char == "-" else "-" for char in host).strip("-")
    host = host or "localhost"
    cpu_milli = len(os.sched_getaffinity(0)) * 1000 // nodes
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // nodes
    names = [host] if nodes == 1 else [f"{host}-{at}" for at in range(1, nodes + 1)]
    return [Share(name, cpu_milli, memory) for name in names]
