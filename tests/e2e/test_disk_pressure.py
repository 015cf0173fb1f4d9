"""A disk that fills up, in a file system made for it: what the node reports, and which pod goes."""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually, pod

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xfail(os.geteuid() != 0, reason="only root mounts a file system", run=False),
]
MIB = 2**20


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", disk], check=True)
    made = Plane(disk / "data", words=("--eviction-hard", "nodefs.available<100Mi"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
        subprocess.run(["umount", disk], check=True)


def found(plane: Plane, *words: str) -> Any:
    return json.loads(plane.grange("get", *words, "-o", "json"))


def is_in(plane: Plane, name: str, phase: str) -> bool:
    return bool(found(plane, "pod", name)["status"].get("phase") == phase)


def pressure(plane: Plane) -> str:
    (node,) = found(plane, "nodes")["items"]
    (status,) = [
        item["status"] for item in node["status"]["conditions"] if item["type"] == "DiskPressure"
    ]
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    is_tainted = "node.kubernetes.io/disk-pressure" in taints
    return str(status) if (status == "True") == is_tainted else "taint differs"


def test_pod_that_fills_the_disk_is_evicted_and_gives_it_back(plane: Plane, tmp_path: Path) -> None:
    asking = json.loads(pod("keeps", "sleep", "1000"))
    asking["spec"]["containers"][0]["resources"] = {"requests": {"ephemeral-storage": "10Mi"}}
    keeps = json.dumps(asking)
    fills = pod("fills", "sh", "-c", f"head -c {130 * MIB} /dev/zero > big; sleep 1000")
    for name, text in (("keeps", keeps), ("fills", fills)):
        (tmp_path / f"{name}.yaml").write_text(text)
        plane.grange("apply", "-f", str(tmp_path / f"{name}.yaml"))
    eventually(lambda: found(plane, "pod", "fills")["status"].get("reason") == "Evicted", "evicted")
    eventually(lambda: pressure(plane) == "True", "the condition and the taint")
    status = found(plane, "pod", "fills")["status"]
    assert status["phase"] == "Failed"
    assert "The node was low on resource: ephemeral-storage" in status["message"]
    eventually(lambda: found(plane, "pod", "keeps")["status"]["phase"] == "Running", "it stays")
    left = os.statvfs(plane.directory)
    assert left.f_bavail * left.f_frsize > 150 * MIB
    assert found(plane, "nodes")["items"][0]["status"]["capacity"]["ephemeral-storage"] == "200Mi"
    (tmp_path / "late.yaml").write_text(pod("late", "sleep", "1000"))
    plane.grange("apply", "-f", str(tmp_path / "late.yaml"))
    eventually(lambda: "out of disk pressure" in plane.grange("why", "pod/late"), "the reason")


def test_volume_beyond_its_limit_ends_the_pod(plane: Plane, tmp_path: Path) -> None:
    volumes = [
        {"name": "small", "emptyDir": {"sizeLimit": "5Mi"}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "20Mi"}},
    ]
    for name, volume, size in (("over", "small", 10), ("light", "memory", 10)):
        script = f"head -c {size * MIB} /dev/zero > $GRANGE_VOLUME_{volume.upper()}/f; sleep 1000"
        made = json.loads(pod(name, "sh", "-c", script))
        made["spec"]["volumes"] = volumes
        made["spec"]["containers"][0]["volumeMounts"] = [
            {"name": item["name"], "mountPath": f"/{item['name']}"} for item in volumes
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
        plane.grange("apply", "-f", str(tmp_path / f"{name}.json"))
    eventually(lambda: found(plane, "pod", "over")["status"].get("reason") == "Evicted", "evicted")
    assert 'EmptyDir volume "small"' in found(plane, "pod", "over")["status"]["message"]
    eventually(lambda: found(plane, "pod", "light")["status"]["phase"] == "Running", "it runs")
    light = found(plane, "pod", "light")
    place = plane.directory / "pods" / light["metadata"]["uid"] / "volumes" / "memory"
    memory = place.readlink()
    assert memory.is_relative_to("/dev/shm")  # noqa: S108  where the machine has it
    eventually(lambda: (memory / "f").stat().st_size == 10 * MIB, "its file is whole")
    plane.grange("delete", "pod", "light")
    assert not memory.parent.exists()


def test_files_of_a_finished_pod_go_before_a_running_pod(plane: Plane, tmp_path: Path) -> None:
    """The first fills the disk without pressure and ends; the second brings the pressure."""
    for name, end in (("done", "echo wrote"), ("runs", "sleep 1000")):
        made = json.loads(pod(name, "sh", "-c", f"head -c {60 * MIB} /dev/zero > big; {end}"))
        made["spec"]["restartPolicy"] = "Never"
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
        plane.grange("apply", "-f", str(tmp_path / f"{name}.json"))
        phase = "Succeeded" if name == "done" else "Running"
        eventually(partial(is_in, plane, name, phase), phase)
    eventually(lambda: pressure(plane) == "True", "the condition and the taint")

    def has_room() -> bool:
        left = os.statvfs(plane.directory)
        return left.f_bavail * left.f_frsize > 110 * MIB

    eventually(has_room, "the files are deleted")
    assert found(plane, "pod", "done")["status"]["phase"] == "Succeeded"
    assert found(plane, "pod", "runs")["status"]["phase"] == "Running"
    assert "wrote" in plane.grange("logs", "done")
