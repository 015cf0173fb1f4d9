"""The disk below a data directory, measured file by file; links are never followed."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from grange.agent import memory_volumes, pod_directory
from grange.agent.node_disk import FileSystemStats, PodStorage
from grange.base.offload import Offload

_BLOCK = 512  # of st_blocks, whatever the file system's are


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
        """What pods use."""
        return await self._offload.run(
            lambda: {uid: self._of(self._pods / uid) for uid in uids if (self._pods / uid).is_dir()}
        )

    async def discard(self, pod_uid: str) -> None:
        """Delete the volumes, the temporary files and the roots of a pod; its logs stay."""
        await self._offload.run(lambda: self._discard(self._pods / pod_uid))

    def _of(self, pod: Path) -> PodStorage:
        memory = _each(memory_volumes.directory_of(pod))
        return PodStorage(
            volumes={**_each(pod / "volumes"), **memory},
            in_memory=frozenset(memory),
            containers=_each(pod / self._containers),
            shared=_size(str(pod / "tmp")),
        )

    def _discard(self, pod: Path) -> None:
        memory_volumes.remove(pod)
        roots = (pod / self._containers).glob("*/root")
        for path in (pod / "volumes", pod / "tmp", *roots):
            pod_directory.remove_tree(path)


def _each(directory: Path) -> dict[str, int]:
    """The size of each directory in a directory."""
    try:
        with os.scandir(directory) as entries:
            found = [item.name for item in entries if item.is_dir(follow_symlinks=False)]
    except OSError:  # the pod goes, or has none
        return {}
    return {name: _size(str(directory / name)) for name in found}


def _size(top: str) -> int:
    """Bytes on disk of a tree; what goes meanwhile counts for nothing."""
    total, pending = 0, [top]
    seen: set[tuple[int, int]] = set()  # files with several names count once
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for item in entries:
                    try:
                        found = item.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if item.is_dir(follow_symlinks=False):
                        pending.append(item.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in seen:
                            continue
                        seen.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * _BLOCK
        except OSError:
            continue
    return total
