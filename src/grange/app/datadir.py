"""The data directory: made on first use, its owner's alone, and what it remembers between starts."""

import os
import stat
from pathlib import Path

import msgspec

from grange.app.key_files import write_private
from grange.base.errors import GrangeError

REMEMBERED = "nodes.json"
REMEMBERED_POOLS = "pools.json"
MACHINES = "machines"  # directory of local machines; missing where there never were any


class DataDirectoryUnusable(GrangeError):
    """The data directory cannot be made, written or trusted; the message names it and what to do."""


class _Remembered(msgspec.Struct):
    nodes: int


def make_directory(path: Path) -> None:
    """Make it if it is missing, with mode 0700, and check that no other user can write it.

    Raises:
        DataDirectoryUnusable: it cannot be made or written, or others could put files into it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(path)
    except OSError as error:
        raise DataDirectoryUnusable(
            f"cannot make the data directory {path}: {error.strerror}; name another with --data-dir"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise DataDirectoryUnusable(
            f"the data directory {path} cannot be written: make it writable (is its file system "
            "mounted read-only?), or name another with --data-dir"
        )


def node_certificate(directory: Path) -> Path:
    """Certificate and key with which the agent of a data directory calls the API server."""
    return directory / "pki" / "node.pem"


def _check_owner(path: Path) -> None:
    """Refuse what another user made or could change: keys, the store and programs are read here."""
    mine = {os.geteuid()}
    if path.is_symlink() and path.lstat().st_uid not in mine | {0}:
        raise _untrusted(path, "is a symbolic link of another user")
    real = path.resolve()
    status = real.stat()
    if status.st_uid not in mine:
        raise _untrusted(path, f"belongs to another user (uid {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _untrusted(path, "can be written by others; run chmod go-w on it")
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _untrusted(path, f"lies in {parent}, which everybody can write")


def _untrusted(path: Path, why: str) -> DataDirectoryUnusable:
    return DataDirectoryUnusable(
        f"the data directory {path} {why}: others could replace the keys in it; "
        "or name another with --data-dir"
    )


def remembered_nodes(path: Path) -> int | None:
    """How many nodes the machine was presented as the last time; None where that is not recorded."""
    try:
        return msgspec.json.decode((path / REMEMBERED).read_bytes(), type=_Remembered).nodes
    except (OSError, msgspec.MsgspecError):
        return None


def remember_nodes(path: Path, nodes: int) -> None:
    """Remember it for the next start.

    Raises:
        DataDirectoryUnusable: the directory cannot be written.
    """
    write(path / REMEMBERED, msgspec.json.encode(_Remembered(nodes)))


def remembered_pools(path: Path) -> tuple[str, ...]:
    """The pool of each node the last time, empty for none; nothing where that is not recorded."""
    try:
        return msgspec.json.decode((path / REMEMBERED_POOLS).read_bytes(), type=tuple[str, ...])
    except (OSError, msgspec.MsgspecError):
        return ()


def remember_pools(path: Path, pools: tuple[str, ...]) -> None:
    """Remember the pool of each node for the next start.

    Raises:
        DataDirectoryUnusable: the directory cannot be written.
    """
    write(path / REMEMBERED_POOLS, msgspec.json.encode(pools))


def write(path: Path, content: bytes) -> None:
    """Replace a file of the data directory.

    Raises:
        DataDirectoryUnusable: it cannot be written.
    """
    try:
        write_private(path, content)
    except OSError as error:
        raise DataDirectoryUnusable(
            f"cannot write {path}: {error.strerror}; make the data directory writable, "
            "or name another with --data-dir"
        ) from error


def keep_older(path: Path, kept: int) -> None:
    """Rename a file to ``NAME.1``, and its predecessors to the next number; the oldest is replaced.

    Raises:
        OSError: the directory cannot be written.
    """
    for number in range(kept, 0, -1):
        before = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
        if before.exists():
            before.replace(path.with_name(f"{path.name}.{number}"))
