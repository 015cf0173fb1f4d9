"""The first process of a container's PID namespace: reaps what the program leaves behind.

Run in the shim, so it imports nothing but its neighbours and the standard library.

The kernel ends all processes of a PID namespace with the first one, and makes orphans its children. A
program that were the first process itself would ignore SIGTERM unless it handles it
(pid_namespaces(7)), so it is the second one. Both are children of the shim, which learns from the kernel
how the program ended.

All that the first process has to do is to be there until the shim closes a pipe or ends: the kernel reaps for a
parent that ignores SIGCHLD. Its memory is paid for each container, so it executes ``cat``, which has a
tenth of the memory of a forked interpreter. It makes the mount namespace in which the program builds its
view, because ``/proc/1/root`` must lead to that view and not to the machine: pivot_root(2)
moves every process of a mount namespace that is at the old root.
"""

import ctypes
import errno
import os
import signal
from collections.abc import Mapping, Sequence

from grange.agent.runtimes.process import control_group

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PROGRAMS = ("/bin/cat", "/usr/bin/cat")  # ends with its input
_MOST_DESCRIPTORS = 1 << 20
_NUMBER_MAX = 16

_libc = ctypes.CDLL(None, use_errno=True)


def start(groups: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """Start it, with mount, IPC and UTS namespaces, which the program joins.

    Args:
        groups: its control groups.
        environment: by which it is known.

    Returns:
        Its process id, and the descriptor with which it ends.

    Raises:
        OSError: the kernel does not allow it.
    """
    alive_r, alive_w = os.pipe2(os.O_CLOEXEC)
    made_r, made_w = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            _be_first(alive_r, made_w, groups, environment)
    finally:
        os.close(alive_r)
        os.close(made_w)
    answer = os.read(made_r, _NUMBER_MAX)
    os.close(made_r)
    if answer != b"0":
        os.close(alive_w)
        os.waitpid(pid, 0)
        number = int(answer or errno.ECHILD)
        raise OSError(number, os.strerror(number))
    return pid, alive_w


def _be_first(
    alive: int, report: int, groups: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Never returns."""
    try:
        number = _prepare(alive, groups)
        os.write(report, str(number).encode())
        if number == 0:
            os.closerange(2, _MOST_DESCRIPTORS)
            _wait(environment)
    finally:
        os._exit(0)


def _prepare(alive: int, groups: Sequence[str]) -> int:
    """All that can fail; answers with an errno."""
    try:
        control_group.join(groups)
        os.chdir("/")
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.dup2(alive, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
        # Without its shim it must not run, even if a program holds its input open.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # A program of the same user may trace it, and is to gain nothing by that.
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        made = _libc.unshare(_CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS)
    except OSError as error:
        return error.errno or errno.EINVAL
    return ctypes.get_errno() if made < 0 else 0


def _wait(environment: Mapping[str, str]) -> None:
    for program in _PROGRAMS:
        try:
            os.execve(program, ["cat"], environment)  # noqa: S606  without a shell
        except OSError:  # a machine without it, or without this path
            continue
    os.read(0, 1)
