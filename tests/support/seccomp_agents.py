"""The seccomp agents of a data directory: processes, and the paths that they listen at."""

import os
from contextlib import suppress
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
            links = set()
            with suppress(OSError):  # it has ended
                for item in (entry / "fd").iterdir():
                    with suppress(
                        FileNotFoundError
                    ):  # closed meanwhile, as is every call that is answered
                        links.add(os.readlink(item))
            if links & wanted:
                found.append(int(entry.name))
    return found
