"""A second agent: from its start to a Ready node, and a Service that leads to its pod.

Both agents are on this computer; the connection takes the way that it takes between machines.
"""

import http.client
import json
import shlex
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.startup import free_port, grange, until_ready

LIMIT_S = 60.0
CONNECTIONS = 100
STREAM_BYTES = 256 * 1024 * 1024
SERVER = """
import os, socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        piece = bytes(65536)
        for line in self.request.makefile("rb"):
            count = int(line)
            while count > 0:
                self.request.sendall(piece[:count]); count -= len(piece)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, request_queue_size = True, 64
Server((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "far", "labels": {"app": "far"}},
    "spec": {
        "nodeName": "far",
        "containers": [
            {
                "name": "main",
                "command": [sys.executable, "-c", SERVER],
                "readinessProbe": {"tcpSocket": {"port": 8080}},
            }
        ],
    },
}
PATH = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "far"},
    "spec": {"selector": {"app": "far"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


class Api:
    """The control plane, as its administrator, over one connection.

    A connection for each poll would cost the server more than the join that is measured.
    """

    def __init__(self, url: str, directory: Path) -> None:
        context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        parts = urlsplit(url)
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=10, context=context
        )
        token = (directory / "pki" / "token").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: object = None, method: str = "") -> Any:
        """The answer; raises ``LookupError`` where nothing is at the path."""
        data = None if body is None else json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        self._connection.request(method, path, data, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status == HTTPStatus.NOT_FOUND:
            raise LookupError(path)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise RuntimeError(f"{path}: {answer.status}: {text!r}")
        return json.loads(text)

    def until_condition(self, path: str) -> None:
        """Poll until the object at a path is Ready."""
        deadline = time.perf_counter() + LIMIT_S
        while time.perf_counter() < deadline:
            try:
                found = self.ask(path).get("status", {}).get("conditions", [])
            except LookupError:
                found = []
            if any(item["type"] == "Ready" and item["status"] == "True" for item in found):
                return
            time.sleep(0.005)
        raise TimeoutError(f"{path} is not Ready after {LIMIT_S:g} s")


def endpoint_slice(name: str, address: str, **more: object) -> dict[str, Any]:
    """A slice of the Service with one endpoint."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "far"}},
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}, **more}],
    }


def received(address: tuple[str, int], count: int) -> float:
    """Seconds from connecting until so many bytes are here."""
    started, left = time.perf_counter(), count
    with socket.create_connection(address, timeout=LIMIT_S) as end:
        end.sendall(b"%d\n" % count)
        while left > 0:
            piece = end.recv(1 << 20)
            if not piece:
                raise ConnectionError(f"{left} bytes are missing")
            left -= len(piece)
    return time.perf_counter() - started


def until_listening(address: tuple[str, int]) -> None:
    """Wait until connections are accepted, whatever becomes of them."""
    deadline = time.perf_counter() + LIMIT_S
    while True:
        try:
            socket.create_connection(address, timeout=LIMIT_S).close()
            return
        except ConnectionRefusedError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.05)


def until_reached(address: tuple[str, int]) -> None:
    """Wait for the proxy."""
    deadline = time.perf_counter() + LIMIT_S
    while True:
        try:
            received(address, 1)
            return
        except OSError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.05)


def measure() -> dict[str, float]:
    """One run."""
    directory = Path(tempfile.mkdtemp(prefix="grange-bench-"))
    data, port = directory / "data", free_port()
    url = f"https://127.0.0.1:{port}"
    server = subprocess.Popen(
        grange("up", "--data-dir", str(data), "--listen", f"127.0.0.1:{port}", "--no-switch"),
        stdout=subprocess.DEVNULL,
    )
    child: subprocess.Popen[bytes] | None = None
    try:
        until_ready(url)
        kubeconfig = str(data / "kubeconfig")
        while not Path(kubeconfig).exists():
            time.sleep(0.005)
        token = grange("token", "create", "--node", "far", "--kubeconfig", kubeconfig)
        printed = subprocess.run(token, check=True, capture_output=True, text=True).stdout
        api = Api(url, data)
        # Both agents are on this computer, and the first to listen on the address has it: that is to be
        # the one whose way to the pod leads through the other.
        without = {**SERVICE, "spec": {"ports": SERVICE["spec"]["ports"]}}
        service = api.ask("/api/v1/namespaces/default/services", without)
        api.ask(PATH, endpoint_slice("first", "127.0.0.1"))
        address = str(service["spec"]["clusterIP"]), 80
        until_listening(address)
        words = grange(*shlex.split(printed)[1:], "--data-dir", str(directory / "far"))
        time.sleep(2.0)  # the control plane is at rest
        started = time.perf_counter()
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        api.until_condition("/api/v1/nodes/far")
        result = {"join_s": time.perf_counter() - started}
        pod = api.ask("/api/v1/namespaces/default/pods", POD)
        api.until_condition("/api/v1/namespaces/default/pods/far")
        found = api.ask("/api/v1/namespaces/default/pods/far")
        target = {"kind": "Pod", "namespace": "default", "name": "far"}
        target["uid"] = pod["metadata"]["uid"]
        api.ask(
            PATH,
            endpoint_slice("far", found["status"]["podIP"], nodeName="far", targetRef=target),
        )
        api.ask(f"{PATH}/first", method="DELETE")
        until_reached(address)
        times = [received(address, 1) for _ in range(CONNECTIONS)]
        result["connect_ms"] = 1000 * statistics.median(times)
        result["stream_gbit"] = STREAM_BYTES * 8e-9 / received(address, STREAM_BYTES)
        return result
    finally:
        for process in filter(None, (child, server)):
            process.terminate()
            process.wait(LIMIT_S)
        shutil.rmtree(directory, ignore_errors=True)
