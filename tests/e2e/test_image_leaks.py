"""What pods from images leave behind, when the agent is killed while they run: nothing.

Collected where there is a containerd: on a Debian system as root (see ``conftest``).
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import LIMIT_S, Plane, eventually
from tests.support import containerd, seccomp_agents
from tests.support.containerd import BUSYBOX, Containerd

from grange.agent import memory_volumes

pytestmark = pytest.mark.e2e

BATCH = 4
SCRIPT = "sleep 600 & (setsid sleep 600 &) ; exec sleep 600"  # with a child and a daemon


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    with containerd.running(tmp_path_factory.mktemp("containerd")) as made:
        yield made


@pytest.fixture
def plane(daemon: Containerd, tmp_path: Path) -> Iterator[Plane]:
    words = ("--cri-socket", str(daemon.socket), "--network", "addresses")
    made = Plane(tmp_path / "data", words=words)
    made.start()
    yield made
    made.stop()


def manifest(name: str) -> object:
    main = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", SCRIPT],
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
    }
    volumes = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
    spec = {"terminationGracePeriodSeconds": 1, "containers": [main], "volumes": volumes}
    meta = {"name": name, "labels": {"app": "leak"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def run_batch(plane: Plane, number: int) -> None:
    items = [manifest(f"p{number}-{at}") for at in range(BATCH)]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    plane.grange("apply", "-f", "-", "--wait", stdin=json.dumps(document))


def delete_all(plane: Plane, daemon: Containerd) -> None:
    plane.grange("delete", "pods", "-l", "app=leak")
    eventually(lambda: daemon.containers() == [], "containers and sandboxes go")
    pods = plane.directory / "cri" / "pods"
    eventually(lambda: list(pods.iterdir()) == [], "their files go")
    assert seccomp_agents.sockets(plane.directory) == []
    eventually(lambda: seccomp_agents.running(plane.directory) == [], "seccomp agents end")


def mounts_of(text: str) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if text in line]


def volumes_in_memory(plane: Plane) -> list[Path]:
    """Where those of the pods are that are there now."""
    pods = (plane.directory / "cri" / "pods").iterdir()
    return [memory_volumes.directory_of(pod) for pod in pods]


def metrics(plane: Plane) -> str:
    words = [str(find()), "--kubeconfig", str(plane.kubeconfig), "get", "--raw", "/metrics"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout


def test_nothing_is_left_of_containers_and_kills(plane: Plane, daemon: Containerd) -> None:
    for number in range(2):
        run_batch(plane, number)
        volumes = volumes_in_memory(plane)
        assert [path.is_dir() for path in volumes] == BATCH * [True]
        assert len(daemon.containers()) == 2 * BATCH
        assert len(seccomp_agents.running(plane.directory)) == BATCH
        plane.kill()
        plane.start()
        delete_all(plane, daemon)
        assert mounts_of(str(plane.directory)) == []
        assert not any(path.exists() for path in volumes)
    run_batch(plane, 2)
    shown = 'grange_container_memory_bytes{container="main",namespace="default"'
    eventually(lambda: shown in metrics(plane), "their usage is shown")
    plane.stop()
    left = len(daemon.containers())
    assert left == 2 * BATCH  # stopped, with their logs, for the next start
    plane.start()
    delete_all(plane, daemon)
