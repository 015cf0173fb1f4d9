"""The seam to the disk that pods write to."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class FileSystemStats(NamedTuple):
    """The file system that holds what pods write.

    Attributes:
        capacity, available: bytes, and those that programs can still have.
        inodes, inodes_free: the same in inodes; zeros where it counts none.
    """

    capacity: int
    available: int
    inodes: int = 0
    inodes_free: int = 0


@dataclass(frozen=True, slots=True)
class PodStorage:
    """The disk that a pod uses, in bytes.

    Attributes:
        volumes: of each directory that lives as long as the pod.
        in_memory: names of those that use memory and no disk.
        containers: of each container, its logs included.
        shared: of what its containers share beyond volumes.
    """

    volumes: Mapping[str, int] = field(default_factory=dict)
    in_memory: frozenset[str] = frozenset()
    containers: Mapping[str, int] = field(default_factory=dict)
    shared: int = 0

    @property
    def total(self) -> int:
        """All that it uses of the disk."""
        on_disk = sum(size for name, size in self.volumes.items() if name not in self.in_memory)
        return on_disk + sum(self.containers.values()) + self.shared


class NodeDisk(Protocol):
    """The disk of a runtime."""

    async def stats(self) -> FileSystemStats:
        """What is left of it.

        Raises:
            OSError: it cannot be measured.
        """

    async def usage(self, uids: Collection[str]) -> Mapping[str, PodStorage]:
        """What these pods use, by UID; without those that have no files."""

    async def discard(self, pod_uid: str) -> None:
        """Delete what a pod's programs wrote, except for logs; none of them runs any more."""
