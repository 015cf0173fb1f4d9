"""Which processes listen on which TCP ports, from ``/proc``. Everything here blocks."""

import os
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from grange.agent.container_runtime import ListeningSocket

_LISTEN = "0A"  # the state in the kernel's tables


def find(owner_of: Callable[[int], tuple[str, str] | None]) -> list[ListeningSocket]:
    """The listening sockets of the processes of containers.

    Args:
        owner_of: pod UID and container of a process; None for one that is not a container's.
    """
    tables: dict[int, dict[str, tuple[str, int]]] = {}
    found = set()
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if (owner := owner_of(pid)) is None:
            continue
        sockets = _sockets(pid, tables)
        found |= {
            ListeningSocket(*owner, *sockets[inode]) for inode in _inodes(pid) if inode in sockets
        }
    return sorted(found)


def _sockets(pid: int, tables: dict[int, dict[str, tuple[str, int]]]) -> dict[str, tuple[str, int]]:
    """The listening sockets of the network of a process, from the tables or added to them."""
    try:
        network = os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:  # it ended meanwhile
        return {}
    if network not in tables:
        names = (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6")
        tables[network] = {key: value for name in names for key, value in _table(name).items()}
    return tables[network]


def _table(path: str) -> dict[str, tuple[str, int]]:
    """Inode to address and port of every listening socket."""
    try:
        with open(path, encoding="ascii") as source:
            rows = [line.split() for line in source.readlines()[1:]]
    except OSError:
        return {}
    return {row[9]: _address(row[1]) for row in rows if len(row) > 9 and row[3] == _LISTEN}


def _address(text: str) -> tuple[str, int]:
    """``0100007F:1F90`` is 127.0.0.1, port 8080: words of four bytes, least significant first."""
    host, _, port = text.partition(":")
    data = bytes.fromhex(host)
    data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return str(IPv4Address(data) if len(data) == 4 else IPv6Address(data)), int(port, 16)


def _inodes(pid: int) -> list[str]:
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                found.append(target[8:-1])
    except OSError:  # it ended meanwhile
        return found
    return found
