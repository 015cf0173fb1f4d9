"""Manifests of TFJob and PyTorchJob as training operators' users write them, through a real server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import Kubectl
from tests.e2e.planes import Plane, eventually
from tests.unit.api.test_kubeflow_kinds import MANIFESTS

pytestmark = pytest.mark.e2e

RUNS = """
apiVersion: "kubeflow.org/v1"
kind: TFJob
metadata: {name: tf}
spec:
  tfReplicaSpecs:
    PS:
      template:
        spec:
          containers:
            - {name: tensorflow, image: "registry.example/a:1", command: [sleep, "600"]}
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: tensorflow
              image: registry.example/a:1
              command: [sh, -c, 'echo "$TF_CONFIG"']
---
apiVersion: "kubeflow.org/v1"
kind: PyTorchJob
metadata: {name: torch}
spec:
  pytorchReplicaSpecs:
    Master: &role
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example/b:1
              command: [sh, -c, 'echo "rank $RANK of $WORLD_SIZE"']
    Worker: *role
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane") / "data") as made:
        yield made


def created(plane: Plane, home: Path, manifests: str) -> str:
    """What kubectl prints that creates them."""
    kubectl = Kubectl(home, plane.kubeconfig)
    return asyncio.run(kubectl.ok("create", "-f", "-", stdin=manifests)).out


def pods(plane: Plane, job: str, namespace: str) -> list[dict[str, Any]]:
    label = f"training.kubeflow.org/job-name={job}"
    return list(plane.get("pods", "-l", label, "-n", namespace)["items"])


def variables(pod: dict[str, Any]) -> dict[str, str]:
    found = pod["spec"]["containers"][0]["env"]
    return {item["name"]: item.get("value", "") for item in found}


def test_published_forms_become_wired_pods(plane: Plane, tmp_path: Path) -> None:
    asyncio.run(Kubectl(tmp_path, plane.kubeconfig).ok("create", "namespace", "kubeflow"))
    out = created(plane, tmp_path, MANIFESTS)
    assert out.splitlines() == [
        "tfjob.kubeflow.org/digits created",
        "pytorchjob.kubeflow.org/elastic created",
    ]
    eventually(lambda: len(pods(plane, "digits", "kubeflow")) == 6, "pods of the TFJob")
    found = {item["metadata"]["name"]: item for item in pods(plane, "digits", "kubeflow")}
    assert sorted(found) == [
        *("digits-ps-0", "digits-ps-1"),
        *(f"digits-worker-{index}" for index in range(4)),
    ]
    server, worker = found["digits-ps-1"], found["digits-worker-3"]
    assert {item["spec"]["containers"][0]["image"] for item in found.values()} == {
        "registry.example/digits:1.0"
    }
    assert server["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    config = json.loads(variables(worker)["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 3}
    assert {role: len(hosts) for role, hosts in config["cluster"].items()} == {"ps": 2, "worker": 4}
    eventually(lambda: len(pods(plane, "elastic", "default")) == 2, "pods of the PyTorchJob")
    elastic = variables(pods(plane, "elastic", "default")[0])
    assert elastic["PET_NNODES"] == "1:3"
    assert elastic["PET_RDZV_BACKEND"] == "c10d"
    why = plane.grange("why", "tfjob/digits", "-n", "kubeflow")
    assert 'persistentvolumeclaim "logs" not found' in why


def test_published_forms_run_to_their_end(plane: Plane, tmp_path: Path) -> None:
    created(plane, tmp_path, RUNS)
    for kind, name in (("tfjob", "tf"), ("pytorchjob", "torch")):
        plane.grange("wait", f"{kind}/{name}", "--for", "condition=Succeeded")
    lines = plane.grange("job", "logs", "pytorchjob/torch").splitlines()
    assert sorted(lines) == ["[master-0] rank 0 of 2", "[worker-0] rank 1 of 2"]
    text = plane.grange("job", "logs", "tfjob/tf", "--index", "1")
    assert '"task":{"type":"worker","index":1}' in text
    kubectl = Kubectl(tmp_path, plane.kubeconfig)
    listed = asyncio.run(kubectl.ok("get", "tfjob", "tf"))
    assert listed.lines[1].split()[:2] == ["tf", "Succeeded"]
