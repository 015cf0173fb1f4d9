"""What this machine has, shared out between the nodes it is presented as."""

import os
import platform
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grange.agent.resolver_config import ResolverConfig, parse_resolver
from grange.api.pod_requests import EPHEMERAL_STORAGE

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
        disk_bytes: size of the file system of the data directory.
        pods: how many pods at most.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    pods: int = MAX_PODS_PER_NODE

    def capacity(self) -> dict[str, str]:
        """The share as node capacity."""
        return {
            "cpu": f"{self.cpu_milli}m",
            "memory": f"{self.memory_bytes // _MIB}Mi",
            EPHEMERAL_STORAGE: f"{self.disk_bytes // _MIB}Mi",
            "pods": str(self.pods),
        }


def node_name(host: str) -> str:
    """The host's name without its domain as a DNS label, with room left for a number."""
    label = host.split(".", maxsplit=1)[0].lower()
    label = "".join(char if char.isascii() and char.isalnum() else "-" for char in label)
    return label.strip("-")[:_NAME_MAX].rstrip("-") or "localhost"


def shares(nodes: int, data_dir: Path) -> list[Share]:
    """The machine in equal parts, named ``<host>-1`` and so on, however many there are.

    Args:
        nodes: how many parts.
        data_dir: where pods have their files; it need not exist yet.
    """
    host = node_name(platform.node())
    cpu_milli = len(os.sched_getaffinity(0)) * 1000 // nodes
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // nodes
    there = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    disk = shutil.disk_usage(there).total // nodes
    names = [f"{host}-{at}" for at in range(1, nodes + 1)]
    return [Share(name, cpu_milli, memory, disk) for name in names]


def own_directories() -> tuple[Path, ...]:
    """Where this program was started and the environment that it runs in: programs of pods are there."""
    found = [Path(sys.prefix)]
    with suppress(FileNotFoundError):  # it was deleted
        found.append(Path.cwd())
    return tuple(found)


def resolver() -> ResolverConfig:
    """How the machine resolves names; nothing where it has no such file."""
    try:
        return parse_resolver(_RESOLVER.read_text(errors="replace"))
    except OSError:
        return ResolverConfig()
