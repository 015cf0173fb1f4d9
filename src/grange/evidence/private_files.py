"""Files below a directory that only its owner can read. Everything here blocks."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from grange.evidence.evidence_paths import PARTIAL

_PRIVATE = 0o700
_PRIVATE_FILE = 0o600
_MOST = 100_000  # entries of a walk, against trees without an end


def make_directory(path: Path, root: Path) -> None:
    """Make a directory and those above it up to the root, each its owner's alone."""
    root.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    place = root
    for part in path.relative_to(root).parts:
        place /= part
        with suppress(FileExistsError):
            place.mkdir(mode=_PRIVATE)


def open_partial(directory: Path) -> tuple[int, Path]:
    """Descriptor and path of a new file whose name marks it as unfinished."""
    descriptor, name = tempfile.mkstemp(prefix=PARTIAL, dir=directory)
    return descriptor, Path(name)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file, or leave it as it was; on disk when this returns."""
    descriptor, partial = open_partial(path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file, or leave it as it was; on disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE_FILE)
    try:
        size = os.fstat(descriptor).st_size
        try:
            left = memoryview(line + b"\n")
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[bytes]:
    """The whole lines of a file; a last one without an end, of a process that was killed, is cut off."""
    if not path.exists():
        return []
    content = path.read_bytes()
    *lines, torn = content.split(b"\n")
    if torn:  # what is appended next must not become a part of it
        os.truncate(path, len(content) - len(torn))
    return lines


def files(root: Path) -> Iterator[Path]:
    """The whole files below a directory, by name; links are not followed."""
    left = _MOST
    waiting = [root]
    while waiting and left > 0:
        place = waiting.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            continue
        left -= len(entries)
        folders = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(PARTIAL):
                yield Path(entry.path)
        waiting += reversed(folders)


def directories(root: Path) -> Iterator[Path]:
    """The directories in a directory, by name; links are left out."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
