"""What is below a process: found in ``/proc``, killed and reaped. For the shim, so it imports little."""

import os
import signal
import time

MARK = "GRANGE_RUN"
"""The variable by which processes of a run are found when their shim is gone."""

_CHUNK = 65536


class Children:
    """Direct children of this process, zombies included.

    The kernel's list is opened once: at the end there may be no descriptor left to look with.
    """

    def __init__(self) -> None:
        me = os.getpid()
        try:
            self._list = os.open(f"/proc/self/task/{me}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._list = -1  # a kernel without this file: look at every process

    def pids(self) -> list[int]:
        """Their process ids; none where it cannot be found out."""
        try:
            return self._listed() if self._list >= 0 else _searched(os.getpid())
        except OSError:
            return []

    def _listed(self) -> list[int]:
        os.lseek(self._list, 0, os.SEEK_SET)
        pieces = []
        while piece := os.read(self._list, _CHUNK):
            pieces.append(piece)
        return [int(pid) for pid in b"".join(pieces).split()]


def _searched(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as source:
                    if int(source.read().rpartition(b")")[2].split()[1]) == parent:
                        found.append(int(name))
            except (OSError, IndexError, ValueError):
                continue
    return found


def kill_children(children: Children, limit_s: float) -> None:
    """Kill and reap until there is no child; the children of the killed arrive here as well."""
    deadline = time.monotonic() + limit_s
    pause = 0.0005
    while time.monotonic() < deadline:
        for pid in children.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(pause)
        pause = min(0.02, pause * 2)


def kill_tree(leader: int, limit_s: float) -> None:
    """Kill a process that leads a session, with the session's others and all descendants.

    For commands in the PID namespace of a container: what they leave behind becomes a child of the
    first process there, and not of the shim. One that has left both is the container's.
    """
    deadline = time.monotonic() + limit_s
    pause = 0.0005
    while (found := _tree(leader)) and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(pause)
        pause = min(0.02, pause * 2)


def _tree(leader: int) -> set[int]:
    parents: dict[int, int] = {}
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as source:
                state, parent, _, session = source.read().rpartition(b")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            parents[int(name)] = int(parent)
            if int(session) == leader:
                found.add(int(name))
    more = {leader} & parents.keys()
    while more:
        found |= more
        more = {pid for pid, parent in parents.items() if parent in found} - found
    return found
