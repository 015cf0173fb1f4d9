"""A machine is lost with its agent, another one takes over, and the lost one comes back."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import LIMIT_S, Plane, eventually, processes_with
from tests.e2e.second_machine import (
    SecondMachine,
    node_state,
    other_node,
    plane_for,
    second_machine,
)

pytestmark = pytest.mark.e2e

REPLICAS = 2
MANIFEST = f"""
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: grange.dev/v1alpha1
kind: ReplicationController
metadata: {{name: web}}
spec:
  replicas: {REPLICAS}
  podLabels: {{app: web}}
  template:
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
        - {{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}}
        - {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}}
      containers:
        - name: main
          workingDir: %(directory)s
          command: [{sys.executable}, -m, http.server, "8080", --bind, $(POD_IP), --directory, %(directory)s]
          readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
"""


@pytest.fixture
def machine() -> Iterator[SecondMachine]:
    with second_machine() as made:
        yield made


@pytest.fixture
def plane(machine: SecondMachine, tmp_path: Path) -> Iterator[Plane]:
    with plane_for(machine, tmp_path) as made:
        yield made


@pytest.fixture
def agents() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Agents that end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for agent in started:
        agent.terminate()
        agent.wait(LIMIT_S)


def kubectl(plane: Plane, *words: str) -> None:
    flag = f"--kubeconfig={plane.kubeconfig}"
    subprocess.run([find(), flag, *words], check=True, capture_output=True)


class Replicas:
    """What there is of the replicas and of their Service."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._plane.get("pods", "-l", "app=web")["items"]
        return found

    def nodes(self) -> list[str]:
        """Of the pods that are not being deleted."""
        kept = [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]
        return sorted(pod["spec"].get("nodeName", "") for pod in kept)

    def endpoints(self) -> list[str]:
        """The nodes of the endpoints that get connections."""
        slices = self._plane.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
        found = [end for item in slices for end in item.get("endpoints") or ()]
        return sorted(end["nodeName"] for end in found if end["conditions"]["ready"])


def test_lost_machine_is_replaced_and_returns(
    machine: SecondMachine,
    plane: Plane,
    tmp_path: Path,
    agents: list["subprocess.Popen[bytes]"],
) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("served")
    lost = machine.join(plane, "far", tmp_path)
    agents.append(lost)
    near, replicas = other_node(plane, "far"), Replicas(plane)
    kubectl(plane, "cordon", near)
    plane.grange("apply", "-f", "-", stdin=MANIFEST % {"directory": tmp_path / "page"})
    eventually(lambda: replicas.endpoints() == REPLICAS * ["far"], "pods on far have connections")
    url = f"http://{plane.get('service', 'web')['spec']['clusterIP']}/"
    eventually(lambda: SecondMachine().fetch(url) == "served", "the Service leads to far")
    kubectl(plane, "uncordon", near)

    machine.connect("down")
    lost.kill()
    lost.wait(LIMIT_S)
    eventually(lambda: node_state(plane, "far") == "Unknown", "the node is not Ready")
    eventually(lambda: "far" not in replicas.endpoints(), "lost pods get no connections")
    eventually(lambda: replicas.nodes() == REPLICAS * [near], "the pods are replaced")
    eventually(lambda: replicas.endpoints() == REPLICAS * [near], "the new pods get connections")
    eventually(lambda: SecondMachine().fetch(url) == "served", "the Service leads to this machine")
    terminating = [pod for pod in replicas.pods() if "deletionTimestamp" in pod["metadata"]]
    assert [pod["spec"]["nodeName"] for pod in terminating] == REPLICAS * ["far"]

    machine.connect("up")
    agents.append(machine.join(plane, "far", tmp_path))
    eventually(lambda: len(replicas.pods()) == REPLICAS, "the former pods are gone")
    assert replicas.nodes() == replicas.endpoints() == REPLICAS * [near]
    programs = processes_with("http.server 8080 --bind 127.")
    mine = [pid for pid in programs if str(tmp_path) in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(mine) == REPLICAS
    taints = next(n for n in plane.get("nodes")["items"] if n["metadata"]["name"] == "far")["spec"]
    assert not taints.get("taints")
    assert SecondMachine().fetch(url) == "served"
