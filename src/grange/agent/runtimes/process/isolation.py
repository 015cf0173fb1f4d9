"""A container's own view of the machine: namespaces, made without privileges where the kernel allows it.

Run in the shim, so it imports nothing but the standard library.

Theory of operation. The shim moves to a new PID namespace (``separate``), and to a new user namespace
first unless it is root; the user namespace maps its user to itself, so files keep their owners and
the program gains nothing. Its next child is the first process there (``first_process``) and makes the
other namespaces. The child after that joins them (``join_first``), builds the view (``enter``) and
becomes the program.

The view is a tmpfs with the machine's top-level directories bound into it, so every program and
library is where it is on the machine. Over that come: a ``/proc`` of the namespace, a ``/tmp`` and a
``/dev/shm`` of the pod's, nothing in place of what is hidden, the pod's own directory at its path,
and the volumes at their mount paths. Where a mount path lies in a directory of the machine that has
no such entry, that directory is replaced by a tmpfs with the same entries, each bound again:
nothing is ever created on the machine.
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Mapping, Sequence

from grange.agent.runtimes.process import beneath

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_MOUNT_SETATTR, _MOUNT_ATTR_RDONLY, _AT_RECURSIVE = 442, 1, 0x8000
_BASE, _OLD = "/tmp", "/.grange-old-root"  # noqa: S108  a place to mount on, not a file
_SHM = "/dev/shm"  # noqa: S108  likewise
_LEFT_OUT = ("tty0", *(f"tty{n}" for n in range(1, 10)), "ttyS", "vcs", "loop", "ram", "nbd")
_ROOT_OPTIONS = "mode=0755,size=1m"
_LOCKED = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC

_INNER = {_CLONE_NEWIPC: "ipc", _CLONE_NEWUTS: "uts", _CLONE_NEWNS: "mnt"}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)


def check(result: int) -> None:
    """Raise the error of a system call that failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Attach a file system, or a copy of what is mounted elsewhere, at a path.

    Raises:
        OSError: it is refused.
    """
    encoded = kind.encode() if kind else None
    check(_libc.mount(source.encode(), target.encode(), encoded, flags, data.encode()))


def separate() -> None:
    """Move to namespaces in which the next child is the first process.

    Raises:
        OSError: the kernel or its settings do not allow it.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and _libc.unshare(_CLONE_NEWPID) == 0:
        return
    check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as target:
        target.write(text)


def enter(view: Mapping[str, object]) -> None:
    """Build the view and change to it; called in the mount namespace of the first process.

    Args:
        view: ``hostname``; ``pod``: directory that stays at its path; ``tmp``: directory to be
            ``/tmp``; ``shown``: directories of the machine below ``/tmp`` that stay there;
            ``hidden``: absolute paths without links that show nothing; ``mounts``: volume, path in
            it, target and whether it is read-only, outer targets first; ``read_only``: only
            volumes, ``/tmp`` and ``/dev/shm`` are writable.

    Raises:
        OSError: a part of it is refused.
    """
    name = str(view["hostname"]).encode()[:64]
    check(_libc.sethostname(name, len(name)))
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    mounts = [
        (beneath.open_beneath(volume, part, os.O_PATH), target, only)
        for volume, part, target, only in _mounts(view)
    ]
    shown = [(_opened(path), path) for path in _listed(view["shown"]) if os.path.isdir(path)]
    pod, tmp, null = (_opened(str(path)) for path in (view["pod"], view["tmp"], os.devnull))
    entries = sorted(os.listdir("/"))
    mount("tmpfs", _BASE, "tmpfs", _MS_NOSUID | _MS_NODEV, _ROOT_OPTIONS)
    for entry in entries:
        if f"/{entry}" not in ("/proc", _BASE):
            _copy(f"/{entry}", f"{_BASE}/{entry}")
    for place in ("proc", _BASE[1:], _OLD[1:]):
        os.mkdir(f"{_BASE}/{place}")
    mount("proc", f"{_BASE}/proc", "proc", _LOCKED)
    _bind(tmp, _BASE + _BASE)
    own = {_mount_id(_BASE), _mount_id(_BASE + _BASE)}
    for source, path in shown:
        os.makedirs(_BASE + path, exist_ok=True)
        _bind(source, _BASE + path)
    for path in _listed(view["hidden"]):
        _hide(_BASE + path, null, own)
    if os.path.isdir(_BASE + _SHM):
        mount("tmpfs", _BASE + _SHM, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    where = _BASE + str(view["pod"])
    os.makedirs(where, exist_ok=True)
    _bind(pod, where)
    check(_libc.syscall(_pivot_root(), _BASE.encode(), (_BASE + _OLD).encode()))
    os.chdir("/")
    for source, target, only in mounts:
        _place(target, stat.S_ISDIR(os.fstat(source).st_mode), own)
        _bind(source, target)
        if only:
            _make_read_only(target)
    check(_libc.umount2(_OLD.encode(), _MNT_DETACH))
    os.rmdir(_OLD)
    if view.get("read_only"):
        writable = [target for _, target, only in mounts if not only]
        _make_all_read_only(
            [item for item in (_BASE, _SHM, "/proc", *writable) if os.path.exists(item)]
        )
    for descriptor in (pod, tmp, null, *(at for at, _ in shown), *(at for at, _, _ in mounts)):
        os.close(descriptor)


def _mounts(view: Mapping[str, object]) -> list[tuple[str, str, str, bool]]:
    found: list[tuple[str, str, str, bool]] = view["mounts"]  # type: ignore[assignment]  # our own
    return [
        (str(source), str(part), str(target), bool(only)) for source, part, target, only in found
    ]


def _listed(value: object) -> Sequence[str]:
    found: Sequence[str] = value  # type: ignore[assignment]  # our own
    return sorted(found)  # outer ones first


def _pivot_root() -> int:
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return number


def _mount_id(path: str) -> int:
    """Which mount a path is on."""
    place = _opened(path)
    try:
        with open(f"/proc/self/fdinfo/{place}", encoding="ascii") as source:
            fields = dict(line.split(":", 1) for line in source)
    finally:
        os.close(place)
    return int(fields["mnt_id"])


def _opened(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _bind(source: int, target: str) -> None:
    mount(f"/proc/self/fd/{source}", target, None, _MS_BIND | _MS_REC)


def _copy(source: str, target: str) -> None:
    """Let an entry of a directory appear in another place: links as links, all else bound."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
        return
    _make(target, directory=stat.S_ISDIR(mode))
    mount(source, target, None, _MS_BIND | _MS_REC)


def _make(path: str, *, directory: bool) -> None:
    if directory:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _hide(path: str, null: int, own: set[int]) -> None:
    if os.path.isdir(path):
        mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, _ROOT_OPTIONS)
        own.add(_mount_id(path))
    elif os.path.exists(path):
        _bind(null, path)


def _place(target: str, directory: bool, own: set[int]) -> None:  # noqa: FBT001  one caller
    """Let there be something to mount on, without creating anything on the machine."""
    if os.path.exists(target):
        return
    parent = os.path.dirname(target)
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    if _mount_id(parent) not in own:
        _shadow(os.path.realpath(parent))
        own.add(_mount_id(parent))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(target):
        os.unlink(target)  # it leads nowhere
    _make(target, directory=directory)


def _shadow(directory: str) -> None:
    """Replace a directory of the machine by a tmpfs with the same entries.

    Terminals and disks of the machine are left out of ``/dev``: nothing in a container needs them,
    and each entry is a mount.
    """
    before = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mode = stat.S_IMODE(os.fstat(before).st_mode)
    mount("tmpfs", directory, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode={mode:o},size=1m")
    for entry in os.listdir(before):
        if directory == "/dev" and entry.startswith(_LEFT_OUT):
            continue
        _copy(f"/proc/self/fd/{before}/{entry}", f"{directory}/{entry}")
    os.close(before)


def _make_read_only(target: str) -> None:
    """Make a bind read-only; the flags that it has may not be taken away in a user namespace."""
    flags = os.statvfs(target).f_flag & _LOCKED
    mount("none", target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | flags)


def _make_all_read_only(but: Sequence[str]) -> None:
    """Make every mount read-only, except the mounts at these paths."""
    _set_attributes("/", _MOUNT_ATTR_RDONLY, 0, recursive=True)
    for target in but:
        _set_attributes(target, 0, _MOUNT_ATTR_RDONLY, recursive=False)


def _set_attributes(path: str, add: int, clear: int, *, recursive: bool) -> None:
    attributes = struct.pack("=QQQQ", add, clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    check(_libc.syscall(_MOUNT_SETATTR, -1, path.encode(), flags, attributes, len(attributes)))


def join_network(path: str) -> None:
    """Move to the network namespace that is mounted on a file, with all later children.

    Raises:
        OSError: it is not there, or may not be joined.
    """
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        check(_libc.setns(namespace, _CLONE_NEWNET))
    finally:
        os.close(namespace)


def join(pid: int) -> Callable[[], None]:
    """Move to the PID namespace of a running program, for the next child.

    Args:
        pid: of the program.

    Returns:
        What that child calls to see what the program sees.

    Raises:
        OSError: the program has ended, or may not be joined.
    """
    outer = {_CLONE_NEWPID: "pid"}
    if os.stat(f"/proc/{pid}/ns/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
        outer = {_CLONE_NEWUSER: "user", **outer}
    inner = _namespaces(pid, _INNER)
    _move(_namespaces(pid, outer))
    return lambda: _move(inner)


def join_first(pid: int) -> None:
    """Move to the mount, IPC and UTS namespaces of the first process.

    Raises:
        OSError: it has ended.
    """
    _move(_namespaces(pid, _INNER))


def _namespaces(pid: int, kinds: Mapping[int, str]) -> dict[int, int]:
    """Descriptors of namespaces of a process, by their kind."""
    return {
        kind: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        for kind, name in kinds.items()
    }


def _move(namespaces: Mapping[int, int]) -> None:
    for kind, namespace in namespaces.items():
        check(_libc.setns(namespace, kind))
        os.close(namespace)
