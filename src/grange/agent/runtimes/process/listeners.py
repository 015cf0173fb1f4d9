"""Which containers listen on which TCP ports. Everything here blocks."""

from pathlib import Path

from grange.agent import listening_sockets
from grange.agent.container_runtime import ListeningSocket
from grange.agent.runtimes.process.child_processes import MARK
from grange.agent.runtimes.process.environments import environment_of


def find(pods: Path) -> list[ListeningSocket]:
    """The listening sockets of the processes of all containers.

    Args:
        pods: the directory of the pods; a process names its attempt below it.
    """
    prefix = f"{MARK}={pods}/".encode()
    return listening_sockets.find(lambda pid: _owner(pid, prefix))


def _owner(pid: int, prefix: bytes) -> tuple[str, str] | None:
    """Pod UID and container that a process was started for."""
    for item in environment_of(pid):
        if item.startswith(prefix):
            parts = item.removeprefix(prefix).decode(errors="replace").split("/")
            return (parts[0], parts[2]) if len(parts) > 2 else None
    return None
