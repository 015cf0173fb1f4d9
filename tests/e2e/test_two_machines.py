"""Two machines: as root the second one is a network namespace, else a second agent of this one.

What is shown in a namespace alone: the agents reach each other over a network, and neither reaches the
loopback addresses of the other.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually, pod

pytestmark = pytest.mark.e2e
HERE, THERE = "10.213.78.1", "10.213.78.2"
IS_ROOT = os.geteuid() == 0

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
CLIENT = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.fixture(scope="module")
def machine() -> Iterator[list[str]]:
    """The words that run a command on the second machine."""
    if not IS_ROOT:
        yield []
        return
    name, ours, theirs = f"grange-{os.getpid()}", f"gr{os.getpid()}a", f"gr{os.getpid()}b"
    inside = ["ip", "netns", "exec", name]
    for words in (
        ["ip", "netns", "add", name],
        ["ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name],
        ["ip", "addr", "add", f"{HERE}/30", "dev", ours],
        ["ip", "link", "set", ours, "up"],
        [*inside, "ip", "addr", "add", f"{THERE}/30", "dev", theirs],
        [*inside, "ip", "link", "set", theirs, "up"],
        [*inside, "ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(words, check=True)
    yield inside
    subprocess.run(["ip", "link", "del", ours], check=True)
    subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture(scope="module")
def plane(machine: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    words = ("--listen", f"{HERE}:0", "--tls-san", HERE) if machine else ()
    made = Plane(tmp_path_factory.mktemp("two") / "data", words=words)
    line = made.start()
    if machine:
        assert made.output is not None
        shown = line + made.output.readline() + made.output.readline()
        assert re.search(rf"grange token create --server https://{HERE}:\d+ --kubeconfig", shown)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def child(
    machine: list[str], plane: Plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent of the second machine, whose node is ``far``."""
    directory = tmp_path_factory.mktemp("far")
    printed = shlex.split(plane.grange("token", "create", "--node", "far"))
    more = ("--data-dir", str(directory / "agent"), "--capacity", "cpu=1,memory=1Gi")
    with (directory / "log").open("w") as log:
        started = subprocess.Popen([*machine, *GRANGE, *printed[1:], *more], stdout=log, stderr=log)
    eventually(lambda: state(plane) == "True", "the node is Ready")
    yield started
    started.kill()
    started.wait(LIMIT_S)


def state(plane: Plane) -> str:
    for node in plane.get("nodes")["items"]:
        for item in node["status"].get("conditions", []):
            if node["metadata"]["name"] == "far" and item["type"] == "Ready":
                return str(item["status"])
    return ""


def serve(plane: Plane, name: str, node: str) -> str:
    """A Service of one pod on a node; the URL."""
    container = {"readinessProbe": {"tcpSocket": {"port": 8080}}}
    text = pod(name, sys.executable, "-c", SERVER, nodeName=node, container=container)
    plane.grange(
        "apply", "-f", "-", stdin=text.replace(f'"name": "{name}"', LABELLED % (name, name), 1)
    )
    service = f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8080}}]}}}}"
    plane.grange("apply", "-f", "-", stdin=service)
    plane.grange("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return f"http://{plane.get('service', name)['spec']['clusterIP']}/"


LABELLED = '"name": "%s", "labels": {"app": "%s"}'


def answers(machine: list[str], url: str, wanted: str) -> bool:
    words = [*machine, sys.executable, "-c", CLIENT, url]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.stdout.strip() == wanted


def test_services_lead_to_pods_on_both_machines(
    machine: list[str], plane: Plane, child: "subprocess.Popen[bytes]"
) -> None:
    local = next(
        node["metadata"]["name"]
        for node in plane.get("nodes")["items"]
        if node["metadata"]["name"] != "far"
    )
    far, near = serve(plane, "web", "far"), serve(plane, "near", local)
    for where in ([], machine):
        for url, node in ((far, "far"), (near, local)):
            eventually(lambda: answers(where, url, node), f"{where}: {url} is served by {node}")  # noqa: B023  called at once
    assert child.poll() is None


def test_stopped_agent_takes_its_node_out_at_once(
    plane: Plane, child: "subprocess.Popen[bytes]"
) -> None:
    child.send_signal(signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0
    assert state(plane) == "False"
