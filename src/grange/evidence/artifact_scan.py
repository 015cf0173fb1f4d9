"""Files in a directory that a program fills: found by pattern, opened without following links.

The program may change the directory at any time. Each step of a path is therefore opened relative to
the directory before it, and a link is refused where it is met. Everything here blocks.
"""

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DEEPEST = 32
_MOST = 20_000  # entries that are looked at
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe must not block the one who opens it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that matches.

    Attributes:
        path: relative to the directory, with ``/``.
        size: bytes, when it was found.
        refusal: why it is not to be read; empty where it is.
    """

    path: str
    size: int = 0
    refusal: str = ""


def find(root: Path, patterns: Sequence[str]) -> Iterator[FoundFile]:
    """The files below a directory that match any of some patterns, by name; none where it is gone.

    In a pattern ``*`` and ``?`` stand for characters of one name, ``**`` for any directories.
    """
    try:
        top = os.open(root, _DIRECTORY)
    except OSError:
        return
    split = [pattern.strip("/").split("/") for pattern in patterns]
    budget = _MOST
    waiting: list[tuple[str, ...]] = [()]
    try:
        while waiting:
            parts = waiting.pop()
            folders = []
            for entry, status in _entries(top, parts):
                budget -= 1
                if budget < 0:
                    yield FoundFile("/".join(parts), 0, f"more than {_MOST} files are there")
                    return
                path = (*parts, entry)
                if stat.S_ISDIR(status.st_mode):
                    if len(path) < _DEEPEST:
                        folders.append(path)
                elif any(_matches(path, pattern) for pattern in split):
                    yield _found("/".join(path), status)
            waiting += reversed(folders)
    finally:
        os.close(top)


def is_match(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern."""
    return _matches(path.split("/"), pattern.strip("/").split("/"))


def open_beneath(root: Path, path: str) -> int:
    """A descriptor of a regular file below a directory; no step of the path may be a link.

    Raises:
        OSError: it is not there, or no regular file.
    """
    *folders, name = path.split("/")
    if not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise OSError(0, "the path leaves the directory")
    descriptor = os.open(root, _DIRECTORY)
    try:
        for folder in folders:
            descriptor = _step(descriptor, folder)
        file = os.open(name, _FILE, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(0, "it is no regular file")


def _step(descriptor: int, folder: str) -> int:
    """The descriptor of a directory in a directory, instead of that one's."""
    inner = os.open(folder, _DIRECTORY, dir_fd=descriptor)
    os.close(descriptor)
    return inner


def _entries(top: int, parts: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
    try:
        descriptor = os.dup(top)
        try:
            for part in parts:
                descriptor = _step(descriptor, part)
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in entries)
            for name in names:
                with suppress(FileNotFoundError):
                    yield name, os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        finally:
            os.close(descriptor)
    except OSError:
        return  # it was deleted, or replaced by a link


def _found(path: str, status: os.stat_result) -> FoundFile:
    if stat.S_ISLNK(status.st_mode):
        return FoundFile(path, 0, "it is a symbolic link, which is not followed")
    if not stat.S_ISREG(status.st_mode):
        return FoundFile(path, 0, "it is no regular file")
    return FoundFile(path, status.st_size)


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches: by the pattern's parts, each reached from some of the path's."""
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = {*range(min(reached, default=len(path) + 1), len(path) + 1)}
        else:
            reached = {
                at + 1 for at in reached if at < len(path) and fnmatch.fnmatchcase(path[at], part)
            }
    # ``**`` at the end stands for everything below it.
    return len(path) in reached
