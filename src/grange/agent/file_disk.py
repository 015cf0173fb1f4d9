"""The disk below a data directory, measured file by file; links are never followed."""

import os
from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from grange.agent import memory_volumes, pod_directory
from grange.agent.node_disk import FileSystemStats, PodStorage
from grange.base.offload import Offload

_ENTRIES_AT_ONCE = 512  # some milliseconds
_BLOCK = 512  # of st_blocks, whatever the file system's are

LANES = 4
"""How many calls of a machine's agents may wait for the disk at once: deleting a large volume takes seconds, which must not
hold up the start of other pods."""

_T = TypeVar("_T")
_Walk: TypeAlias = Generator[int, None, _T]
"""Measures, and yields how many entries of directories it has looked at since; holds nothing open."""


class FileDisk:
    """The file system of a data directory; see ``NodeDisk``.

    Args:
        data_dir: on it.
        pods: the directory that has one for each pod.
        containers: name of the directory of a pod that has one for each container.
        offload: for the disk.
    """

    def __init__(self, data_dir: Path, pods: Path, containers: str, offload: Offload) -> None:
        self._data_dir = data_dir
        self._pods = pods
        self._containers = containers
        self._offload = offload

    async def stats(self) -> FileSystemStats:
        """What is left of the file system."""
        found = await self._offload.run(lambda: os.statvfs(self._data_dir))
        size = found.f_frsize
        return FileSystemStats(
            found.f_blocks * size, found.f_bavail * size, found.f_files, found.f_favail
        )

    async def usage(self, uids: Collection[str]) -> Mapping[str, PodStorage]:
        """What pods use.

        Measured piece by piece: what else waits for the disk has its turn in between.
        """
        found: dict[str, PodStorage] = {}
        walk = self._walk(uids, found)

        def advance() -> bool:
            looked_at = 0
            for entries in walk:
                looked_at += entries
                if looked_at >= _ENTRIES_AT_ONCE:
                    return True
            return False

        while await self._offload.run(advance):
            pass
        return found

    async def discard(self, pod_uid: str) -> None:
        """Delete the volumes, the temporary files and the roots of a pod; its logs stay."""
        await self._offload.run(lambda: self._discard(self._pods / pod_uid))

    def _walk(self, uids: Collection[str], found: dict[str, PodStorage]) -> _Walk[None]:
        for uid in uids:
            pod = self._pods / uid
            if pod.is_dir():
                memory = yield from _each(memory_volumes.directory_of(pod))
                volumes = yield from _each(pod / "volumes")
                containers = yield from _each(pod / self._containers)
                shared = yield from _size(str(pod / "tmp"))
                found[uid] = PodStorage(
                    volumes={**volumes, **memory},
                    in_memory=frozenset(memory),
                    containers=containers,
                    shared=shared,
                )

    def _discard(self, pod: Path) -> None:
        memory_volumes.remove(pod)
        roots = (pod / self._containers).glob("*/root")
        for path in (pod / "volumes", pod / "tmp", *roots):
            pod_directory.remove_tree(path)


def _each(directory: Path) -> _Walk[dict[str, int]]:
    """The size of each directory in a directory; none where the pod goes, or has none."""
    found: dict[str, int] = {}
    for item in _entries(str(directory)):
        if item.is_dir(follow_symlinks=False):
            found[item.name] = yield from _size(item.path)
    return found


def _size(top: str) -> _Walk[int]:
    """Bytes on disk of a tree; what goes meanwhile counts for nothing."""
    total, pending = 0, [top]
    seen: set[tuple[int, int]] = set()  # files with several names count once
    while pending:
        entries = _entries(pending.pop())
        yield 1
        for start in range(0, len(entries), _ENTRIES_AT_ONCE):
            some = entries[start : start + _ENTRIES_AT_ONCE]
            total += sum(_blocks(item, seen) for item in some)
            yield len(some)
        pending += [item.path for item in entries if item.is_dir(follow_symlinks=False)]
    return total * _BLOCK


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _blocks(item: os.DirEntry[str], seen: set[tuple[int, int]]) -> int:
    try:
        found = item.stat(follow_symlinks=False)
    except OSError:
        return 0
    if found.st_nlink > 1 and not item.is_dir(follow_symlinks=False):
        if (found.st_dev, found.st_ino) in seen:
            return 0
        seen.add((found.st_dev, found.st_ino))
    return found.st_blocks
