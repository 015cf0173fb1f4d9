"""A test session whose components are containers of a real containerd.

Collected where there is one: on a Debian system as root (see ``conftest``).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import Plane
from tests.support import containerd
from tests.support.containerd import BUSYBOX
from tests.support.own_port import own_port

pytestmark = pytest.mark.e2e

PORT = own_port(1)
PROBE = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
SERVE = "mkdir -p /www && echo ready > /www/index.html && "
SERVE += f"{{ httpd -f -p {PORT} -h /www & trap 'exit 0' TERM; wait; }}"
DRIVE = (
    f"host=${{QPS_WORKERS%:*}} && wget -q -O - http://$host:{PORT}/index.html && "
    'echo "workers $QPS_WORKERS" && test -s "$SCENARIOS_FILE" && '
    'cp "$SCENARIOS_FILE" "$GRANGE_ARTIFACTS/scenario.json" && echo \'{"p99": 7}\''
)


@pytest.fixture
def plane(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    # Its sockets are not below the directory of the test: their paths have 107 characters at most.
    with containerd.running(tmp_path_factory.mktemp("containerd")) as daemon:
        made = Plane(tmp_path / "data", words=("--cri-socket", str(daemon.socket)))
        made.start()
        yield made
        made.stop()


def test_session_of_containers_passes_with_its_evidence(plane: Plane, tmp_path: Path) -> None:
    spec = {
        "driver": {"image": BUSYBOX, "command": ["sh", "-c", DRIVE]},
        "servers": [{"image": BUSYBOX, "command": ["sh", "-c", SERVE], "readinessProbe": PROBE}],
        "scenario": {"load": 3},
        "evidence": {"metrics": [{"name": "p99", "jsonPath": "{.p99}"}]},
    }
    file = tmp_path / "session.json"
    head = {"apiVersion": "grange.dev/v1alpha1", "kind": "TestSession"}
    file.write_text(json.dumps({**head, "metadata": {"name": "boxes"}, "spec": spec}))
    kept = tmp_path / "artifacts"
    plane.grange("test", "run", str(file), "--artifacts", str(kept))
    [session] = plane.get("testsession")["items"]
    status = session["status"]
    assert (status["phase"], status["verdict"]) == ("Succeeded", "Passed")
    assert [item["exitCode"] for item in status["components"] if item["role"] == "driver"] == [0]
    assert [item["value"] for item in status["metrics"]] == [7]
    assert status["evidence"]["complete"]
    [found] = kept.rglob("scenario.json")
    assert json.loads(found.read_text()) == {"load": 3}
    [log] = kept.rglob("*-driver/main.log")
    assert "ready" in log.read_text()


def test_loadtest_runs_in_the_containers_of_its_images(plane: Plane, tmp_path: Path) -> None:
    """What an init container of a component builds is there for its program."""
    build = "mkdir -p www && echo built > www/index.html"
    serve = f"httpd -f -p {PORT} -h /src/workspace/www & trap 'exit 0' TERM; wait"
    server = {
        "language": "cxx",
        "build": {"image": BUSYBOX, "command": ["sh", "-c", build]},
        "run": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", serve]}],
    }
    page = f"http://${{QPS_WORKERS%:*}}:{PORT}/index.html"
    drive = f"until wget -q -O - {page}; do sleep 0.2; done && "  # LoadTests have no probes
    drive += 'grep -q 10010 $SCENARIOS_FILE && echo "time $POD_TIMEOUT"'
    load_test = {
        "apiVersion": "e2etest.grpc.io/v1",
        "kind": "LoadTest",
        "metadata": {"name": "box-load"},
        "spec": {
            "driver": {
                "language": "cxx",
                "run": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", drive]}],
            },
            "servers": [server],
            "scenariosJSON": json.dumps({"scenarios": [{"name": "s", "server_config": {}}]}),
            "timeoutSeconds": 600,
            "ttlSeconds": 600,
        },
    }
    file = tmp_path / "loadtest.yaml"
    file.write_text(json.dumps(load_test))
    session = tmp_path / "session.yaml"
    session.write_text(plane.cli.run("test", "convert", str(file)).stdout)
    kept = tmp_path / "artifacts"
    plane.grange("test", "run", str(session), "--artifacts", str(kept))
    [log] = kept.rglob("*-driver/main.log")
    assert log.read_text().splitlines() == ["built", "time 600"]
