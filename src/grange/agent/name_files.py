"""The files ``hosts`` and ``resolv.conf`` of a pod, which its isolated containers have in ``/etc``.

They are mounted as files, so they are changed in place: another file of that name would not be seen. The
directory that they are in is the pod's, so a program may have put anything there instead.
"""

import os
import stat
from pathlib import Path

from grange.agent import pod_directory
from grange.agent.container_runtime import NameFiles, PodSetup, RuntimeFailedError

HOSTS, RESOLVER = "hosts", "resolv.conf"
MOUNTED = {HOSTS: "/etc/hosts", RESOLVER: "/etc/resolv.conf"}
"""Where a container has them."""

_MACHINE_RESOLVER = Path("/etc/resolv.conf")
_MODE = 0o644
_LIMIT = 1 << 20


def create(directory: Path, setup: PodSetup, address: str) -> None:
    """Make the files of a new pod; what is there stays.

    Raises:
        OSError: the disk does not allow it.
    """
    for name, content in ((HOSTS, _hosts(setup, address)), (RESOLVER, _machine_resolver())):
        if not _is_regular(directory / name):
            _replace(directory / name, content)


def write(directory: Path, files: NameFiles) -> None:
    """Write the files of a pod in place.

    Raises:
        RuntimeFailedError: the disk does not allow it.
    """
    try:
        for name, text in ((HOSTS, files.hosts), (RESOLVER, files.resolver)):
            if not _is_regular(directory / name):
                _replace(directory / name, text.encode())
            else:
                _overwrite(directory / name, text.encode())
    except OSError as error:
        where, why = error.filename or directory, error.strerror or error
        raise RuntimeFailedError(f"cannot write {where}: {why}") from error


def _overwrite(path: Path, content: bytes) -> None:
    """Change a file so that who reads it meanwhile finds whole lines: never empty, never cut off."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a file")
        padding = b"\n" * max(0, min(found.st_size, _LIMIT) - len(content))
        os.pwrite(descriptor, content + padding, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _replace(path: Path, content: bytes) -> None:
    pod_directory.replace_file(path, f"{path}.new", content, _MODE)


def _hosts(setup: PodSetup, address: str) -> bytes:
    lines = [("127.0.0.1", ("localhost",)), ("::1", ("localhost", "ip6-localhost"))]
    lines.append((address, (setup.hostname or setup.name,)))
    return "".join(f"{ip}\t{' '.join(names)}\n" for ip, names in lines).encode()


def _machine_resolver() -> bytes:
    try:
        with _MACHINE_RESOLVER.open("rb") as source:
            return source.read(_LIMIT)
    except OSError:
        return b""
