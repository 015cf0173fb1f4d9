"""What containers use, from the processes of the machine: one pass over ``/proc`` for all of them.

Everything that a container starts stays below its shim. A process that has ended counts with the one
that waited for it, and so with the shim in the end.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_TICKS_S = float(os.sysconf("SC_CLK_TCK"))
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class _Process(NamedTuple):
    parent: int
    ticks: int  # without its children
    ended_ticks: int  # of the children that it waited for


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What the processes below a shim have used.

    Attributes:
        cpu_s: seconds of CPU.
        memory_bytes: resident memory that is not a file's.
    """

    cpu_s: float
    memory_bytes: int


def below(shims: Mapping[int, bool]) -> tuple[dict[int, ProcessUsage], int]:
    """What runs below each shim.

    Args:
        shims: process ids, and whether the memory is asked for, too.

    Returns:
        By shim; and how many files were read.
    """
    processes: dict[int, _Process] = {}
    children: dict[int, list[int]] = {}
    reads = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _stat(int(name))) is not None:
            reads += 1
            processes[int(name)] = found
            children.setdefault(found.parent, []).append(int(name))
    result = {}
    for shim, with_memory in shims.items():
        if shim not in processes:
            continue
        ticks, memory = processes[shim].ended_ticks, 0
        waiting = list(children.get(shim, ()))
        while waiting:
            pid = waiting.pop()
            waiting += children.get(pid, ())
            ticks += processes[pid].ticks + processes[pid].ended_ticks
            if with_memory:
                memory += _memory(pid)
                reads += 1
        result[shim] = ProcessUsage(ticks / _TICKS_S, memory)
    return result, reads


def _stat(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as source:
            fields = source.read(1024).rpartition(b")")[2].split()
        numbers = [int(fields[index]) for index in (1, 11, 12, 13, 14)]
    except (OSError, IndexError, ValueError):
        return None
    parent, user, system, ended_user, ended_system = numbers
    return _Process(parent, user + system, ended_user + ended_system)


def _memory(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as source:
            _, resident, shared = source.read(256).split()[:3]
    except (OSError, ValueError):
        return 0
    return max(0, int(resident) - int(shared)) * _PAGE_BYTES
