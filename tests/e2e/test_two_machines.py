"""Services over two machines, and a machine that is shut down."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S, Plane, eventually, pod
from tests.e2e.second_machine import (
    SecondMachine,
    node_state,
    other_node,
    plane_for,
    second_machine,
)

pytestmark = pytest.mark.e2e

SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["NODE_NAME"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""

ECHO = """
import os, socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind((os.environ["POD_IP"], 8053))
while True:
    data, sender = end.recvfrom(65535)
    end.sendto(os.environ["NODE_NAME"].encode() + b" " + data, sender)
"""
ASK = """
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.settimeout(5)
end.connect((sys.argv[1], 53))
end.send(b"who")
print(end.recv(65535).decode())
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[SecondMachine]:
    with second_machine() as made:
        yield made


@pytest.fixture(scope="module")
def plane(machine: SecondMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with plane_for(machine, tmp_path_factory.mktemp("two")) as made:
        yield made


@pytest.fixture(scope="module")
def child(
    machine: SecondMachine, plane: Plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent of the second machine, whose node is ``far``."""
    started = machine.join(plane, "far", tmp_path_factory.mktemp("far"))
    yield started
    started.kill()
    started.wait(LIMIT_S)


def expose(plane: Plane, name: str, pod_text: str, ports: str) -> str:
    """Apply a pod and its Service; the cluster address."""
    labelled = f'"name": "{name}", "labels": {{"app": "{name}"}}'
    plane.grange("apply", "-f", "-", stdin=pod_text.replace(f'"name": "{name}"', labelled, 1))
    service = f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: {name}}}, ports: [{ports}]}}}}"
    plane.grange("apply", "-f", "-", stdin=service)
    plane.grange("wait", "--for=condition=Ready", f"pod/{name}")
    return str(plane.get("service", name)["spec"]["clusterIP"])


def serve(plane: Plane, name: str, node: str) -> str:
    """A Service of one pod on a node; the URL."""
    container = {"readinessProbe": {"tcpSocket": {"port": 8080}}}
    text = pod(name, sys.executable, "-c", SERVER, nodeName=node, container=container)
    return f"http://{expose(plane, name, text, '{port: 80, targetPort: 8080}')}/"


def test_services_lead_to_pods_on_both_machines(
    machine: SecondMachine, plane: Plane, child: "subprocess.Popen[bytes]"
) -> None:
    local = other_node(plane, "far")
    far, near = serve(plane, "web", "far"), serve(plane, "near", local)
    for where in (SecondMachine(), machine):
        for url, node in ((far, "far"), (near, local)):
            eventually(lambda: where.fetch(url) == node, f"{where}: {url} is served by {node}")  # noqa: B023  called at once
    assert child.poll() is None


def test_datagrams_reach_pods_on_both_machines(
    machine: SecondMachine, plane: Plane, child: "subprocess.Popen[bytes]"
) -> None:
    ports = "{port: 53, targetPort: 8053, protocol: UDP}"
    for name, node in (("echo-far", "far"), ("echo-near", other_node(plane, "far"))):
        text = pod(name, sys.executable, "-c", ECHO, nodeName=node)
        address = expose(plane, name, text, ports)
        for where in (SecondMachine(), machine):
            eventually(lambda: where.run(ASK, address) == f"{node} who", f"{node} answers {where}")  # noqa: B023  called at once
    assert child.poll() is None


ASK_HUB = """
import os, sys, time, urllib.request
url = "http://" + os.environ["HUB_SERVICE_HOST"] + "/"
for _ in range(600):
    try:
        answer = urllib.request.urlopen(url, timeout=10).read().decode()
        break
    except OSError:
        time.sleep(0.2)
print("asked", answer, "from", os.environ["NODE_NAME"])
sys.exit(0 if os.environ["GRANGE_ATTEMPT"] == "1" else 3)
"""


def hub_job(server_node: str, worker_node: str) -> str:
    """A server on one machine and two workers on another, which fail in their first attempt."""

    def template(node: str, script: str, **container: object) -> dict[str, object]:
        command = [sys.executable, "-u", "-c", script]
        return {
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "command": command, **container}],
            }
        }

    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    server = template(server_node, SERVER, readinessProbe=probe)
    rule = {"action": "RestartRole", "onExitCodes": {"operator": "In", "values": [3]}}
    spec = {
        "replicaSpecs": {
            "server": {"completes": False, "template": server},
            "worker": {
                "replicas": 2,
                "dependsOn": [{"role": "server"}],
                "template": template(worker_node, ASK_HUB),
            },
        },
        "failurePolicy": {"maxRestarts": 1, "rules": [rule]},
        "runPolicy": {"cleanPodPolicy": "Running"},
    }
    kind = {"apiVersion": "grange.dev/v1alpha1", "kind": "GangJob"}
    return json.dumps({**kind, "metadata": {"name": "spread"}, "spec": spec})


def test_job_runs_over_both_machines(
    plane: Plane, child: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    local = other_node(plane, "far")
    selector = {"grange.dev/job-name": "spread", "grange.dev/replica-type": "server"}
    spec = {"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hub"}, "spec": spec}
    plane.grange("apply", "-f", "-", stdin=json.dumps(service))
    path = tmp_path / "spread.json"
    path.write_text(hub_job(local, "far"))
    shown = plane.grange("job", "run", "-f", str(path), "--wait")
    assert "2 of 2 indexes of worker are complete" in shown
    logs = plane.grange("job", "logs", "spread", "--role", "worker")
    for index in (0, 1):
        assert f"[worker-{index}] asked {local} from far" in logs
    status = plane.get("gj", "spread")["status"]
    assert (status["restarts"], status["restartsTowardsMax"]) == (1, 1)
    board = plane.grange("job", "status", "spread")
    assert [line.split()[3] for line in board.splitlines() if "spread-worker-" in line] == [
        "far"
    ] * 2
    assert child.poll() is None


def test_stopped_agent_takes_its_node_out_at_once(
    plane: Plane, child: "subprocess.Popen[bytes]"
) -> None:
    child.send_signal(signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0
    assert node_state(plane, "far") == "False"
