"""The environment that a process was executed with, by which processes of containers are known."""

import time

_PAUSE_S = 0.001
_TRIES = 500  # a disk that does not answer holds a program in its execution
# In ``/proc/PID/stat`` after the name, counted from the state (man 5 proc_pid_stat).
_SIZE, _END_CODE, _ENV_START, _ENV_END = 20, 24, 47, 48


def environment_of(pid: int) -> list[bytes]:
    """The variables a process was executed with, as ``NAME=value``.

    While the kernel executes a program there is a moment with memory but neither arguments nor
    environment (Linux, ``load_elf_binary`` from ``begin_new_exec`` until ``create_elf_tables``). It
    is waited for, half a second at most: a search that looked just then would pass over the program.
    Blocks meanwhile.

    Args:
        pid: of the process.

    Returns:
        The variables; empty for a process that has ended, is of another user, or was given none.
    """
    try:
        for _ in range(_TRIES):
            if found := _read(pid, "environ"):
                return found.split(b"\0")
            fields = _read(pid, "stat").rpartition(b")")[2].split()
            if not int(fields[_SIZE]):
                return []  # ended and not reaped, or of the kernel
            if not int(fields[_END_CODE]):  # set when the environment is in place
                time.sleep(_PAUSE_S)
            elif fields[_ENV_START] == fields[_ENV_END]:
                return []
    except OSError:  # ended, or of another user
        return []
    return []


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as source:
        return source.read()
