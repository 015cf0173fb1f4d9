"""A request that something on the way holds does not outlive its sender's right to make it.

Kernel: two network namespaces are cut off from each other, a DELETE is sent, and the network comes back
when others may have taken over. Without bounds the kernel delivers it then, also for a process that has
ended. The same is tried on loopback against a proxy that does not read.

Proxy: one that has read the request delivers it whatever has become of the sender. The API server
refuses it, because who took over has revoked it.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.e2e.holding_proxy import HoldingProxy
from tests.e2e.late_sender import PADDING, SESSION_S
from tests.e2e.planes import eventually

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.base.clock import LoopClock
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP
from grange.controllers.replication import pod_control
from grange.sim import builders

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CLIENT, SERVER, PORT = "10.213.7.1", "10.213.7.2", 8443
LOOPBACK = "127.0.0.1"
OVER_S = SESSION_S + 2.0  # others have taken over


def ip(*words: str) -> bool:
    try:
        return subprocess.run(["ip", *words], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def started(*command: str) -> "subprocess.Popen[str]":
    """A process, once it reports that it is ready."""
    child = subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def program(*words: str) -> tuple[str, ...]:
    return sys.executable, "-m", "tests.e2e.late_sender", *words


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().rstrip()


def send_line(child: "subprocess.Popen[str]", text: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{text}\n")
    child.stdin.flush()


def unacknowledged_bytes(child: "subprocess.Popen[str]", port: int) -> int:
    """What the kernel keeps of what a process's host sent to a port."""
    rows = Path(f"/proc/{child.pid}/net/tcp").read_text().splitlines()[1:]
    sockets = [(row.split()[2], row.split()[4]) for row in rows]
    return sum(
        int(queues.partition(":")[0], 16)
        for remote, queues in sockets
        if int(remote.partition(":")[2], 16) == port
    )


class Way(Protocol):
    """Between a sender and a server.

    Attributes:
        resent_s: how long the kernel may take to send again what it holds.
    """

    resent_s: float

    def start(
        self, keys: Path, how: str
    ) -> tuple["subprocess.Popen[str]", "subprocess.Popen[str]"]:
        """A server, and a sender that is connected to it."""

    def plug(self, *, pulled: bool) -> None:
        """Cut them off from each other, or join them again."""

    def is_on_the_way(self, sender: "subprocess.Popen[str]") -> bool:
        """Whether the sender has sent what is held now."""

    def end(self) -> None:
        """Take everything down."""


class Lan:
    """Two hosts and a wire between them."""

    resent_s = 8.0  # after pauses that double: longer than the network was away

    def __init__(self) -> None:
        self.hosts = {CLIENT: f"gc{os.getpid()}", SERVER: f"gs{os.getpid()}"}
        self._children: list[subprocess.Popen[str]] = []

    def make(self) -> bool:
        """Whether it could be made."""
        one, two = self.hosts.values()
        if not all(ip("netns", "add", name) for name in (one, two)):
            return False
        wire = ("link", "add", "wire", "netns", one, "type", "veth", "peer", "name", "wire")
        made = ip(*wire, "netns", two)
        for address, name in self.hosts.items():
            made = made and ip("-n", name, "addr", "add", f"{address}/30", "dev", "wire")
            made = made and ip("-n", name, "link", "set", "wire", "up")
        return made

    def start(
        self, keys: Path, how: str
    ) -> tuple["subprocess.Popen[str]", "subprocess.Popen[str]"]:
        where = SERVER, str(PORT), str(keys)
        server = self._run(SERVER, *program("serve", *where))
        return server, self._run(CLIENT, *program("send", *where, how))

    def _run(self, host: str, *command: str) -> "subprocess.Popen[str]":
        child = started("ip", "netns", "exec", self.hosts[host], *command)
        self._children.append(child)
        return child

    def plug(self, *, pulled: bool) -> None:
        """Pull the wire out at the server, or put it back."""
        assert ip("-n", self.hosts[SERVER], "link", "set", "wire", "down" if pulled else "up")

    def is_on_the_way(self, sender: "subprocess.Popen[str]") -> bool:
        return unacknowledged_bytes(sender, PORT) > 0

    def end(self) -> None:
        for child in self._children:
            child.kill()
            child.communicate()
        for name in self.hosts.values():
            ip("netns", "del", name)


class Loopback:
    """One host, and a proxy that holds; ``reads`` as it has it."""

    resent_s = 2.0  # the proxy's kernel asks for more

    def __init__(self, *, reads: bool, serve: str = "serve") -> None:
        self.port = free_port()
        self._serve, self._reads = serve, reads
        self._proxy = HoldingProxy(self.port, reads=reads)
        self._children: list[subprocess.Popen[str]] = []

    def start(
        self, keys: Path, how: str
    ) -> tuple["subprocess.Popen[str]", "subprocess.Popen[str]"]:
        server = started(*program(self._serve, LOOPBACK, str(self.port), str(keys)))
        self._children.append(server)
        sender = started(*program("send", LOOPBACK, str(self._proxy.port), str(keys), how))
        self._children.append(sender)
        return server, sender

    def plug(self, *, pulled: bool) -> None:
        if pulled:
            self._proxy.hold()
        else:
            self._proxy.deliver()

    def is_on_the_way(self, sender: "subprocess.Popen[str]") -> bool:
        if self._reads:
            return self._proxy.held_bytes >= PADDING
        return unacknowledged_bytes(sender, self._proxy.port) > 0

    def end(self) -> None:
        self._proxy.end()
        for child in self._children:
            child.kill()
            child.communicate()


@pytest.fixture(params=["namespaces", "loopback"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """Loopback stands in where namespaces cannot be made."""
    lan = Lan()
    made: Way = lan
    if request.param == "loopback" or not lan.make():
        lan.end()
        made = Loopback(reads=False)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def proxy() -> Iterator[Loopback]:
    """An API server behind a proxy that reads what it holds."""
    made = Loopback(reads=True, serve="api")
    try:
        yield made
    finally:
        made.end()


@pytest.mark.parametrize(
    ("how", "fate", "arrives"),
    [
        ("free", signal.SIGKILL, True),
        ("fenced", signal.SIGKILL, False),
        ("fenced", signal.SIGSTOP, False),
        ("fenced", None, False),
    ],
    ids=["unbounded-killed", "killed", "stopped", "session-ended"],
)
def test_request_held_by_the_kernel_dies_with_the_session(
    how: str, fate: signal.Signals | None, *, arrives: bool, way: Way, tmp_path: Path
) -> None:
    server, sender = way.start(tmp_path, how)
    way.plug(pulled=True)
    send_line(sender, "web uid 1")
    eventually(lambda: way.is_on_the_way(sender), "the request is in the kernel")
    time.sleep(1.0)  # all of it
    if fate is not None:
        sender.send_signal(fate)
    time.sleep(OVER_S)
    way.plug(pulled=False)
    assert line(server) == "GET"
    if arrives:  # however long that takes
        assert line(server) == "DELETE"
        return
    time.sleep(way.resent_s)
    server.kill()
    assert server.communicate()[0] == ""


@pytest.mark.parametrize(
    ("fate", "revoked", "answer"),
    [
        (signal.SIGKILL, False, "DELETE 200"),
        (signal.SIGKILL, True, "DELETE 409"),
        (signal.SIGSTOP, True, "DELETE 409"),
        (None, True, "DELETE 409"),
    ],
    ids=["killed-not-revoked", "killed", "stopped", "session-ended"],
)
def test_request_held_by_a_proxy_is_refused_after_revocation(
    fate: signal.Signals | None, *, revoked: bool, answer: str, proxy: Loopback, tmp_path: Path
) -> None:
    """Nothing takes it back; it is delivered when others have the controller."""
    server, sender = proxy.start(tmp_path, "fenced")
    url, ca_file = f"https://{LOOPBACK}:{proxy.port}", tmp_path / "ca.pem"
    order = asyncio.run(recorded(HTTP(url, ca_file=ca_file)))
    assert line(server) == "PATCH 200"
    proxy.plug(pulled=True)
    send_line(sender, order)
    eventually(lambda: proxy.is_on_the_way(sender), "the proxy has the request")
    time.sleep(1.0)  # all of it
    if fate is not None:
        sender.send_signal(fate)
    time.sleep(OVER_S)
    if revoked:
        asyncio.run(taken_over(HTTP(url, ca_file=ca_file)))
        assert line(server) == "PATCH 200"
    proxy.plug(pulled=False)
    assert line(server) == answer


async def recorded(transport: HTTP) -> str:
    """A controller with a pod whose deletion is recorded; what the request has to name."""
    client = Client(transport, clock=LoopClock())
    try:
        pod = await client.create(POD, builders.pod_document("web"), "default")
        spec: Document = {"replicas": 1, "template": {"spec": builders.pod_document("x")["spec"]}}
        await client.create(
            REPLICATIONCONTROLLER, {"metadata": {"name": "web"}, "spec": spec}, "default"
        )
        meta = pod.metadata
        item = {"pod": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
        patch: Document = {"status": {"pendingDeletions": [item]}}
        await client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=patch, subresource="status"
        )
        return f"{meta.name} {meta.uid} {meta.resource_version}"
    finally:
        await transport.close()


async def taken_over(transport: HTTP) -> None:
    """What a new owner does before anything else is taken away."""
    client = Client(transport, clock=LoopClock())
    try:
        controller = await client.get(REPLICATIONCONTROLLER, "web", "default")
        await pod_control.revoke_deletions(client, controller)
    finally:
        await transport.close()
