"""Takes parts of the machine's file system away from a program, without namespaces and without root.

Run in the shim, so it imports nothing but the standard library.

Landlock (Linux 5.13) knows what a program may reach and nothing that it may not. So everything
but the hidden paths is allowed, entry by entry on the way to them: what is created there later,
and the lists of those directories, are out of reach as well. Links are left out: what they
lead to is reached by its path. Truncation of hidden files can be refused since Linux 6.2 (version 3);
before that the database could be emptied, so that earlier versions are not used.
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on all machines
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_ALL = (1 << 15) - 1  # of version 3
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # execute, write, read, truncate
_SCOPES, _SCOPES_SINCE = 3, 6  # abstract sockets and signals
_NEEDED = 3

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Of the kernel's Landlock; zero where it has none."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, _VERSION_FLAG)))


def restrict(request: Mapping[str, object]) -> None:
    """Take the hidden paths away from this process and from all that it executes.

    Args:
        request: ``hidden``: absolute paths without links; ``shown``: paths below them that stay;
            ``alone``: it is not to signal processes outside either, where the kernel knows how.

    Raises:
        OSError: the kernel does not allow it.
    """
    found = version()
    if found < _NEEDED:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    scopes = _SCOPES if request.get("alone") and found >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", _ALL, 0, scopes)
    size = len(attributes) if found >= _SCOPES_SINCE else 8
    rules = _checked(_libc.syscall(_CREATE, attributes, size, 0))
    try:
        for path in reachable("/", _listed(request["hidden"]), _listed(request["shown"])):
            _allow(rules, path)
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_libc.syscall(_RESTRICT, rules, 0))
    finally:
        os.close(rules)


def reachable(top: str, hidden: Collection[str], shown: Collection[str]) -> Iterator[str]:
    """The outermost paths below a directory that together have all but what is hidden."""
    try:
        entries = sorted(os.listdir(top))
    except (
        OSError
    ):  # not for this user: of what is below, only the way to the hidden paths is known
        ways = (
            item[len(top) :].lstrip("/")
            for item in hidden
            if item.startswith(top.rstrip("/") + "/")
        )
        entries = sorted({way.split("/", 1)[0] for way in ways})
    for entry in entries:
        path = os.path.join(top, entry)
        if path in hidden:
            yield from (item for item in shown if _is_below(item, path))
        elif any(_is_below(item, path) for item in hidden):
            if not os.path.islink(path):
                yield from reachable(path, hidden, shown)
        else:
            yield path


def _is_below(path: str, top: str) -> bool:
    return path.startswith(top + "/")


def _allow(rules: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone meanwhile
        return
    try:
        mode = os.fstat(place).st_mode
        if stat.S_ISLNK(mode):
            return
        rights = _ALL if stat.S_ISDIR(mode) else _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        _checked(_libc.syscall(_ADD, rules, _PATH_BENEATH, rule, 0))
    finally:
        os.close(place)


def _listed(value: object) -> Sequence[str]:
    found: Sequence[str] = value  # type: ignore[assignment]  # our own
    return found


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
