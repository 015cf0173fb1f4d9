"""Services with real processes: their addresses lead to ready pods, in turn, and follow them."""

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.e2e.planes import LIMIT_S, Plane, eventually

from grange.agent.service_proxy.relay import RelaySide
from grange.agent.service_proxy.routes import Endpoint, Frontend, Route
from grange.agent.service_proxy.udp_listener import UdpListener
from grange.api.meta import ObjectKey
from grange.base.clock import Clock

pytestmark = pytest.mark.e2e

SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["POD_NAME"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""
CLIENT = """
import os, urllib.request
print(urllib.request.urlopen(f"http://{os.environ['WEB_SERVICE_HOST']}:{os.environ['WEB_SERVICE_PORT']}/").status)
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("services") / "data")
    made.start()
    yield made
    made.stop()


def apply(plane: Plane, *documents: object) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    plane.grange("apply", "-f", "-", stdin=json.dumps(items))


def web(replicas: int) -> dict[str, object]:
    container = {
        "name": "main",
        "command": [sys.executable, "-c", SERVER],
        "readinessProbe": {"tcpSocket": {"port": 8080}},
    }
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "podLabels": {"app": "web"},
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
        },
    }


def service(**spec: object) -> dict[str, object]:
    ports = [{"name": "http", "port": 8000, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": ports, **spec},
    }


def answer(address: str, port: int) -> str:
    try:
        with urlopen(f"http://{address}:{port}/", timeout=LIMIT_S) as found:
            return str(found.read().decode())
    except (URLError, ConnectionError, TimeoutError):
        return ""


def is_refused(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), LIMIT_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_address_leads_to_the_pods_in_turn_and_follows_them(plane: Plane) -> None:
    apply(plane, web(3), service(type="NodePort"))
    spec = plane.get("service", "web")["spec"]
    address, port = spec["clusterIP"], spec["ports"][0]["port"]
    eventually(lambda: len({answer(address, port) for _ in range(6)} - {""}) == 3, "three answer")
    counts = Counter(answer(address, port) for _ in range(30))
    assert sorted(counts.values()) == [10, 10, 10], counts
    assert answer("127.0.0.1", spec["ports"][0]["nodePort"]) in counts
    victim = min(counts)
    plane.grange("delete", "pod", victim)
    assert all(answer(address, port) for _ in range(20))  # none is sent to a pod that ends
    eventually(lambda: victim not in {answer(address, port) for _ in range(6)}, "it is left out")
    client = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "command": [sys.executable, "-c", CLIENT]}],
        },
    }
    apply(plane, client)
    eventually(
        lambda: (
            plane.get("pod", "client").get("status", {}).get("phase") in {"Succeeded", "Failed"}
        ),
        "the client ends",
    )
    assert plane.grange("logs", "client") == "200\n"
    plane.grange("scale", "grc/web", "--replicas", "0")
    eventually(lambda: is_refused(address, port), "without endpoints nothing listens")


# --- datagrams -------------------------------------------------------------------------------------


async def exchange(end: socket.socket, data: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(end, data)
    async with asyncio.timeout(LIMIT_S):
        return await loop.sock_recv(end, 1 << 16)


def udp_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.setblocking(False)
    return made


async def test_datagrams_and_answers_belong_to_their_client(clock: Clock) -> None:
    servers = [udp_socket() for _ in range(2)]
    loop = asyncio.get_running_loop()

    def echo(server: socket.socket) -> None:
        data, sender = server.recvfrom(1 << 16)
        server.sendto(str(server.getsockname()[1]).encode() + b" " + data, sender)

    for server in servers:
        loop.add_reader(server, echo, server)
    with udp_socket() as probe:
        port = probe.getsockname()[1]
    ends = tuple(Endpoint(*server.getsockname()) for server in servers)
    route = Route(ObjectKey("default", "echo"), ends)
    listener = UdpListener(Frontend("127.0.0.1", port, "UDP"), route, clock, Coroutine.close)
    clients = [udp_socket() for _ in range(2)]
    for client in clients:
        client.connect(("127.0.0.1", port))
    answers = [(await exchange(client, b"a")).split() for client in clients]
    assert {answer[0] for answer in answers} == {str(end.port).encode() for end in ends}
    for client, answer in zip(clients, answers, strict=True):
        assert await exchange(client, b"b" * 60_000) == answer[0] + b" " + b"b" * 60_000
    listener.lead_to(Route(ObjectKey("default", "echo"), ends[:1]))
    for client in clients:
        assert await exchange(client, b"c") == str(ends[0].port).encode() + b" c"
    listener.close()
    for end in (*servers, *clients):
        loop.remove_reader(end)
        end.close()


# --- one connection --------------------------------------------------------------------------------


@pytest.fixture
async def relayed() -> AsyncGenerator[tuple[asyncio.Server, socket.socket, socket.socket], None]:
    """A client's socket and its server's, with the relay in between."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    upstream = listener.getsockname()
    pending: asyncio.Queue[RelaySide] = asyncio.Queue()

    front = await loop.create_server(
        lambda: RelaySide(pending.put_nowait, lambda side: None), "127.0.0.1", 0
    )
    client = socket.create_connection(front.sockets[0].getsockname())
    side = await pending.get()
    _, other = await loop.create_connection(
        lambda: RelaySide(lambda side: None, lambda side: None), *upstream
    )
    server, _ = listener.accept()
    other.join(side)
    for end in (client, server):
        end.setblocking(False)
    yield front, client, server
    for closing in (client, server, listener):
        closing.close()
    front.close()
    await front.wait_closed()


async def read_all(end: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    pieces = []
    while piece := await loop.sock_recv(end, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


async def test_bytes_arrive_whole_and_ends_one_by_one(
    relayed: tuple[asyncio.Server, socket.socket, socket.socket],
) -> None:
    _, client, server = relayed
    loop = asyncio.get_running_loop()
    sent = bytes(range(256)) * 40_000
    reading = asyncio.ensure_future(read_all(server))
    await loop.sock_sendall(client, sent)
    client.shutdown(socket.SHUT_WR)
    assert await reading == sent
    await loop.sock_sendall(server, b"answer")  # the other direction is open still
    server.close()
    assert await read_all(client) == b"answer"


async def test_slow_reader_stops_the_writer(
    relayed: tuple[asyncio.Server, socket.socket, socket.socket],
) -> None:
    """What waits in the proxy is bounded: nothing reads, so at some time nothing can be written."""
    _, client, _ = relayed
    loop = asyncio.get_running_loop()
    written = 0
    piece = bytes(1 << 16)
    for _ in range(4096):
        try:
            async with asyncio.timeout(0.5):
                await loop.sock_sendall(client, piece)
        except TimeoutError:
            break
        written += len(piece)
    assert written < 64 << 20
