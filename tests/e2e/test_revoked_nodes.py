"""A machine that is stolen, with its certificate, between two others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S, Plane, eventually, pod
from tests.e2e.second_machine import SecondMachine, plane_for, second_machine

from grange.api.node_identity import serving_name
from grange.api.stream_requests import TUNNEL, TUNNEL_PROTOCOL
from grange.app.datadir import node_certificate

pytestmark = pytest.mark.e2e

SERVER = """
import http.server, os
http.server.ThreadingHTTPServer(
    (os.environ["POD_IP"], 8080), http.server.SimpleHTTPRequestHandler
).serve_forever()
"""
THIEF = """
import socket, ssl, sys
host, port, name, certificate, authority, path, protocol = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
context.load_cert_chain(certificate)
with socket.create_connection((host, int(port)), 120) as plain:
    with context.wrap_socket(plain, server_hostname=name) as end:
        lines = (
            f"GET {path} HTTP/1.1", f"Host: {name}", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            f"Sec-WebSocket-Protocol: {protocol}", "", "",
        )
        end.sendall("\\r\\n".join(lines).encode())
        answer = end.recv(65536)
        print(answer.split()[1].decode(), flush=True)
        while answer.startswith(b"HTTP/1.1 101"):
            more = end.recv(65536)
            if not more or more[0] & 15 == 8:
                print("closed", flush=True)
                break
"""


def test_agents_refuse_a_revoked_node_within_seconds(tmp_path: Path) -> None:
    for name in ("plane", "stolen", "kept"):
        (tmp_path / name).mkdir()
    with second_machine() as machine, plane_for(machine, tmp_path / "plane") as plane:
        agents = [machine.join(plane, name, tmp_path / name) for name in ("stolen", "kept")]
        try:
            check(machine, plane, tmp_path)
            assert agents[1].poll() is None
        finally:
            agents[0].kill()
            agents[1].terminate()  # one that is killed leaves its pods
            for agent in agents:
                agent.wait(LIMIT_S)


def check(machine: SecondMachine, plane: Plane, directory: Path) -> None:
    """The stolen certificate opens a connection, which ends, and no other."""
    labelled = '"name": "web", "labels": {"app": "web"}'
    text = pod("web", sys.executable, "-c", SERVER, nodeName="kept")
    plane.grange("apply", "-f", "-", stdin=text.replace('"name": "web"', labelled, 1))
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    plane.grange("apply", "-f", "-", stdin=json.dumps(service))
    plane.grange("wait", "--for=condition=Ready", "pod/web")
    node, web = plane.get("node", "kept"), plane.get("pod", "web")
    stolen = directory / "stolen" / "agent"
    words = (
        next(
            item["address"] for item in node["status"]["addresses"] if item["type"] == "InternalIP"
        ),
        str(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]),
        serving_name("kept"),
        str(node_certificate(stolen)),
        str(node_certificate(stolen).with_name("ca.crt")),
        f"/api/v1/namespaces/default/pods/web/{TUNNEL}?port=8080&uid={web['metadata']['uid']}",
        TUNNEL_PROTOCOL,
    )
    command = [*machine.inside, sys.executable, "-c", THIEF, *words]

    def knock() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def first_line() -> str:
        with knock() as asked:
            assert asked.stdout is not None
            line = asked.stdout.readline().strip()
            asked.kill()
        return line

    eventually(lambda: first_line() == "101", "the node reaches the Service of another")
    with knock() as opened:
        assert opened.stdout is not None
        assert opened.stdout.readline() == "101\n"
        revoked = {"name": "revoked-nodes", "namespace": "kube-system"}
        listed = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": revoked}
        plane.grange("apply", "-f", "-", stdin=json.dumps({**listed, "data": {"stolen": "lost"}}))
        assert opened.stdout.readline() == "closed\n"
        assert first_line() == "403"
