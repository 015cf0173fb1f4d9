"""Processes whose shim is gone: found by a mark in their environment, and killed.

Only needed when a shim itself was killed; a shim that ends in order leaves nothing behind.
"""

import os
import signal
from collections.abc import Collection

from grange.agent.runtimes.process import shim

MARK = "GRANGE_RUN"


def kill_marked(directories: Collection[str]) -> int:
    """Kill every process of this user that was started for one of these attempts.

    Args:
        directories: the attempts' directories, as the mark in the environment has them.

    Returns:
        How many processes were killed.
    """
    wanted = {f"{MARK}={directory}".encode() for directory in directories}
    killed: set[int] = set()
    for _ in range(10):  # a process may fork while we look; its children carry the mark as well
        found = [pid for pid in _processes() if _is_marked(pid, wanted)]
        if not found:
            break
        killed.update(pid for pid in found if _kill(pid))
    return len(killed)


def kill_exact(pid: int, started: int) -> bool:
    """Kill a process and its group if it is still the one that started then."""
    if pid <= 1 or started == 0 or shim.start_time(pid) != started:
        return False
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return _kill(pid)
    return True


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _is_marked(pid: int, wanted: Collection[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            return any(item in wanted for item in source.read().split(b"\0"))
    except OSError:  # ended, or somebody else's
        return False


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
