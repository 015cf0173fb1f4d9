"""The disk that pods use, measured file by file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from grange.agent.file_disk import FileDisk
from grange.base.offload import Inline

T = TypeVar("T")
UID = "8a1c2f0e-0000-4000-8000-000000000001"


class Counted(Inline):
    """Counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.calls += 1
        return await super().run(work)


def write(path: Path, size: int = 100_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


async def test_usage_counts_each_part_of_a_pod(tmp_path: Path) -> None:
    pod = tmp_path / "pods" / UID
    write(pod / "volumes" / "data" / "deep" / "file")
    write(pod / "containers" / "main" / "root" / "file")
    write(pod / "tmp" / "file")
    os.link(pod / "tmp" / "file", pod / "tmp" / "again")
    (pod / "volumes" / "elsewhere").symlink_to("/usr")
    (pod / "tmp" / "usr").symlink_to("/usr")
    disk = FileDisk(tmp_path, tmp_path / "pods", "containers", Inline())
    found = (await disk.usage([UID, "unknown"]))[UID]
    for size in (found.volumes["data"], found.containers["main"], found.shared):
        assert 100_000 <= size < 200_000
    assert list(found.volumes) == ["data"]


async def test_measuring_gives_way_to_other_work_of_the_disk(tmp_path: Path) -> None:
    """Containers are started by the same thread."""
    offload = Counted()
    disk = FileDisk(tmp_path, tmp_path / "pods", "containers", offload)
    for uid, files in (("large", 3000), ("small", 1), ("none", 0)):
        (tmp_path / "pods" / uid / "tmp").mkdir(parents=True)
        for number in range(files):
            (tmp_path / "pods" / uid / "tmp" / str(number)).touch()
    assert list(await disk.usage(["none", "small"])) == ["none", "small"]
    assert offload.calls == 1
    await disk.usage(["large"])
    assert offload.calls == 1 + 6
