"""Takes rights from a program before it is executed: capabilities, groups, and the gain of new ones.

Run in the shim, so it imports nothing but its neighbours and the standard library.
"""

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence

from grange.agent.runtimes.process import isolation, landlock

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_CAPGET, _CAPSET = {"x86_64": (125, 126)}.get(os.uname().machine, (90, 91))
_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def limit_capabilities(allowed: int) -> None:
    """Let what is executed have these capabilities at most; call it before the user changes.

    Args:
        allowed: bit mask.

    Raises:
        OSError: the process may not do it.
    """
    for number in range(_LAST_CAPABILITY + 1):
        if allowed >> number & 1:
            continue
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            if number == 0:
                isolation.check(-1)
            break  # the kernel has no capability of that number
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)  # there are none before Linux 4.3
    header = struct.pack("=Ii", _VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    isolation.check(_libc.syscall(_CAPGET, header, data))
    low_e, low_p, low_i, high_e, high_p, high_i = struct.unpack("=6I", data.raw)
    low, high = allowed & 0xFFFFFFFF, allowed >> 32
    # What is inheritable survives execve(2), whatever the bounding set allows.
    kept = struct.pack("=6I", low_e, low_p, low_i & low, high_e, high_p, high_i & high)
    isolation.check(_libc.syscall(_CAPSET, header, kept))


def join_groups(groups: Sequence[int], gid: int | None) -> None:
    """Take these supplementary groups.

    Args:
        groups: of the program.
        gid: its primary group, where its user is another; None keeps the groups that there are.
    """
    before = os.getgroups() if gid is None else [gid]
    os.setgroups(list(dict.fromkeys([*before, *groups])))


def confine(settings: Mapping[str, object]) -> None:
    """Let neither the process nor what it executes gain rights, if that is asked for."""
    if settings.get("no_new_privileges"):
        isolation.check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _show(pod: str, uid: int, gid: int) -> None:
    """Let another user reach the pod's directory whatever it lies in."""
    closed = [place for place in _above(pod) if not _is_open(place, uid, gid)]
    if closed:
        # In its own mount namespace, only the pod's directory is mounted over what is closed.
        isolation.check(_libc.unshare(_CLONE_NEWNS))
        directory = os.open(pod, os.O_PATH | os.O_CLOEXEC)  # a mount of the new view
        isolation.mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        isolation.mount("tmpfs", closed[0], "tmpfs", 0, "mode=0755,size=64k")
        os.umask(0o022)
        os.makedirs(pod)
        isolation.mount(f"/proc/self/fd/{directory}", pod, None, _MS_BIND | _MS_REC)


def take_rights(spec: dict[str, object]) -> None:
    """Change to the program's user and give up what it may not do.

    Args:
        spec: of the program, with ``user``, ``pod``, ``rights`` and ``restrict``.

    Raises:
        OSError: the process may not do it.
    """
    rights: dict[str, object] = spec.get("rights") or {}  # type: ignore[assignment]  # our own
    groups: list[int] = rights.get("groups") or []  # type: ignore[assignment]  # our own
    if rights.get("capabilities") is not None:
        limit_capabilities(int(str(rights["capabilities"])))
    user: tuple[int, int] | None = spec.get("user")  # type: ignore[assignment]  # our own
    if user:
        _show(str(spec["pod"]), *user)
    if request := spec.get(
        "restrict"
    ):  # after the last mount; as the user who may list directories
        landlock.restrict(request)  # type: ignore[arg-type]  # our own file
    if user:
        join_groups(groups, user[1])
        os.setgid(user[1])
        os.setuid(user[0])
    elif groups:
        join_groups(groups, None)
    confine(rights)


def _above(path: str) -> list[str]:
    """The directories that lead to a path, the outermost first."""
    names = os.path.dirname(path).split("/")
    return ["/".join(names[: end + 1]) or "/" for end in range(len(names))]


def _is_open(directory: str, uid: int, gid: int) -> bool:
    found = os.stat(directory)
    shift = 6 if found.st_uid == uid else 3 if found.st_gid == gid else 0
    return bool(found.st_mode >> shift & 1)
