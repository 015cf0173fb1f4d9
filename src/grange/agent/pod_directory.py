"""Files of a pod on the machine's disk: its directory and its volumes.

What programs put there is never trusted: links are deleted or skipped, not followed. Everything here
blocks and is called through an ``Offload``.
"""

import os
import shutil
import stat
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from grange.agent import memory_volumes
from grange.agent.container_runtime import RuntimeFailedError, VolumePlan

PRIVATE, COMMON = 0o700, 0o1777
PASSED = 0o711  # others pass through and cannot look around


def make_own(directory: Path, mode: int) -> None:
    """Make a directory and its parents ours, whatever a program did to their modes."""
    try:
        directory.mkdir(mode=PRIVATE, exist_ok=True)
    except (FileNotFoundError, PermissionError):
        make_own(directory.parent, mode)
        directory.mkdir(mode=PRIVATE, exist_ok=True)
    directory.chmod(mode)


def give_group(volume: Path, group: int) -> None:
    """Let a volume be a group's, too, as the kubelet does it: members may write to all of it."""
    for name, _, files in os.walk(volume):
        for path in (Path(name), *(Path(name, item) for item in files)):
            if path.is_symlink():
                continue
            os.chown(path, -1, group)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o2070 if path.is_dir() else 0o060))


def remove_tree(top: Path) -> None:
    """Delete a tree as far as possible, also where a program has made directories read-only.

    Links are deleted and never followed.
    """
    if top.is_symlink() or not top.is_dir():
        top.unlink(missing_ok=True)
        return
    shutil.rmtree(top, ignore_errors=True)
    if not top.exists():
        return
    with suppress(OSError):
        top.chmod(0o700)
    for name, directories, _ in os.walk(top):
        for path in (Path(name, item) for item in directories):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)  # before it is listed
    shutil.rmtree(top, ignore_errors=True)


def remove_pod(directory: Path) -> None:
    """Delete a pod's directory and its volumes in memory."""
    memory_volumes.remove(directory)
    remove_tree(directory)


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Let a file have this content, whatever was there."""
    replace_file(path, f"{path}.tmp", content, mode)


def replace_file(path: Path, temporary: str, content: bytes, mode: int) -> None:
    """Write a temporary file, whatever was there, and let it take the place of a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, mode)
    except FileExistsError:
        os.unlink(temporary)
        fd = os.open(temporary, flags, mode)
    with os.fdopen(fd, "wb") as target:
        target.write(content)
        os.fchmod(fd, mode)  # whatever the umask took away
    os.replace(temporary, path)


def make_volume(directory: Path, plan: VolumePlan) -> Path:
    """Make a volume, or let it have the files that it has now; the answer is its path.

    Raises:
        OSError: the disk does not allow it.
        RuntimeFailedError: its ``hostPath`` is not what it has to be.
    """
    path = directory / "volumes" / plan.name
    if plan.host_path:
        _check_host_path(plan)
        if not path.is_symlink():
            path.symlink_to(plan.host_path)
        return path
    if plan.in_memory:
        return memory_volumes.make(directory, path)
    if path.is_symlink():  # a program put it there; what it leads to is not ours to change
        path.unlink()
    path.mkdir(exist_ok=True)
    if plan.exact:
        _prune(path, {path / file.path for file in plan.files})
    for file in plan.files:
        target = path / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, file.content, file.mode)
    return path


def _prune(top: Path, files: Set[Path]) -> None:
    """Delete what is below a volume and is neither one of the files nor on the way to one."""
    places = {parent for file in files for parent in file.parents}
    for name, directories, others in os.walk(top):
        here = Path(name)
        here.chmod(here.stat().st_mode | 0o700)
        for path in (here / item for item in (*directories, *others)):
            is_place = path.is_dir() and not path.is_symlink()
            if path not in (places if is_place else files):
                remove_tree(path)
        directories[:] = [item for item in directories if here / item in places]


_HOST_PATH_CHECKS = {"Directory": Path.is_dir, "File": Path.is_file, "Socket": Path.is_socket}


def _check_host_path(plan: VolumePlan) -> None:
    path = Path(plan.host_path)
    if plan.host_path_type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif plan.host_path_type == "FileOrCreate":
        path.touch()
    check = _HOST_PATH_CHECKS.get(plan.host_path_type)
    if check is not None and not check(path):
        raise RuntimeFailedError(
            f'volume "{plan.name}": hostPath {plan.host_path} is not a '
            f"{plan.host_path_type.lower()} of this machine"
        )


def read_regular(path: Path, limit: int) -> bytes | None:
    """The first bytes of a regular file; None without one: links and FIFOs are not opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, limit) if regular else None
    finally:
        os.close(descriptor)


def read_volume(pod: Path, volume: str, path: str, limit: int) -> bytes | None:
    """The first bytes of a regular file in a pod's volume; None without one.

    Programs may have put anything there: links are not followed, and FIFOs not opened.

    Args:
        pod: the pod's directory.
        volume: its name; one that is elsewhere on the machine has no files.
        path: of the file in it.
        limit: bytes to read at most.
    """
    top = pod / "volumes" / volume
    if top.is_symlink():
        top = memory_volumes.directory_of(pod) / volume
    *way, name = path.split("/")
    if ".." in (*way, name):
        return None
    opened: list[int] = []
    try:
        opened.append(os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        for part in way:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            opened.append(os.open(part, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        opened.append(os.open(name, flags, dir_fd=opened[-1]))
        regular = stat.S_ISREG(os.fstat(opened[-1]).st_mode)
        return os.pread(opened[-1], limit, 0) if regular else None
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
