"""The seccomp agents of a data directory: processes, and the paths that they listen at."""

import os
from pathlib import Path

from grange.agent.runtimes.cri import bind_notifier, cri_requests


def sockets(directory: Path) -> list[Path]:
    """The paths that there are."""
    return sorted(bind_notifier.SOCKETS.glob(f"{cri_requests.owner_of(directory)}-*"))


def running(directory: Path) -> list[int]:
    """Processes that listen, whether the path is still there or not."""
    owner, found = cri_requests.owner_of(directory), []
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    wanted = {f"socket:[{line[6]}]" for line in lines if owner in line[-1]}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = {os.readlink(item) for item in (entry / "fd").iterdir()}
            except OSError:  # it has ended
                continue
            if links & wanted:
                found.append(int(entry.name))
    return found
