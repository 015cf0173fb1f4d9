"""What a shim does with the control groups of its container: join, ask for kills, remove.

Run in the shim, so it imports nothing but the standard library.
"""

import os
import time
from collections.abc import Sequence

_EVENTS = ("memory.events", "memory.oom_control")  # of version 2, and of version 1
_REMOVE_LIMIT_S = 1.0
_PAUSE_S = 0.005


def join(directories: Sequence[str]) -> None:
    """Move this process, and with it all that it will start, to these groups.

    Raises:
        OSError: a group is gone, or full.
    """
    for directory in directories:
        with open(f"{directory}/cgroup.procs", "wb", buffering=0) as members:
            members.write(b"0")


def out_of_memory_kills(directories: Sequence[str]) -> int:
    """How many processes of the groups the kernel has killed for want of memory."""
    for directory in directories:
        for name in _EVENTS:
            try:
                with open(f"{directory}/{name}", encoding="ascii") as events:
                    for line in events:
                        key, _, count = line.partition(" ")
                        if key == "oom_kill":
                            return int(count)
            except (OSError, ValueError):
                continue
    return 0


def remove(directories: Sequence[str]) -> bool:
    """Remove groups whose processes have ended; False where the kernel still holds one."""
    deadline = time.monotonic() + _REMOVE_LIMIT_S
    left = list(directories)
    while left:
        left = [directory for directory in left if not _removed(directory)]
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)  # the last process is still on its way out
    return not left


def _removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
