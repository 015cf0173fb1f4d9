"""Datagrams of Services to other machines, and the answers to them."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from grange.agent.service_proxy import datagram_tunnel
from grange.agent.service_proxy.datagram_tunnel import exit_datagrams
from grange.agent.service_proxy.routes import Endpoint, Frontend, PodIdentity, Route
from grange.agent.service_proxy.udp_listener import UdpListener
from grange.api.meta import ObjectKey
from grange.base.clock import LoopClock
from grange.base.message_socket import MessageSocket, Upgrade
from grange.base.tasks import Nursery

pytestmark = pytest.mark.e2e
LIMIT_S = 240
ENDS = tuple(
    Endpoint(f"127.9.0.{number}", 53, "far", PodIdentity("default", f"p{number}", f"u{number}"))
    for number in (1, 2)
)


class FarPods:
    """Pods on another machine that answer with their number, and the way to them in memory."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.dials: list[str] = []
        self.tunnels: list[str] = []
        self.ended = asyncio.Event()
        self._sockets: dict[str, socket.socket] = {}

    async def __aenter__(self) -> "FarPods":
        for end in ENDS:
            made = self._sockets[end.address] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind(("127.0.0.1", 0))
            made.setblocking(False)
            asyncio.get_running_loop().add_reader(made, self._echo, end.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        for address in list(self._sockets):
            self.end(address)

    def end(self, address: str) -> None:
        """The program of a pod ends."""
        made = self._sockets.pop(address)
        asyncio.get_running_loop().remove_reader(made)
        made.close()

    def _echo(self, address: str) -> None:
        data, sender = self._sockets[address].recvfrom(1 << 16)
        self._sockets[address].sendto(address[-1].encode() + data, sender)

    async def dial(self, endpoint: Endpoint, protocol: str) -> Upgrade:
        assert protocol == "UDP"
        self.dials.append(endpoint.address)
        if endpoint.address in self.away:
            raise ConnectionRefusedError("away")
        host, port = self._sockets[endpoint.address].getsockname()

        async def upgrade(messages: MessageSocket) -> None:
            self.tunnels.append(endpoint.address)
            try:
                await exit_datagrams(messages, host, port, LoopClock())
            finally:
                self.tunnels.remove(endpoint.address)
                self.ended.set()
                await messages.close()

        return upgrade


@asynccontextmanager
async def through(far: FarPods) -> AsyncGenerator[tuple[UdpListener, int]]:
    """A listener, and a port that leads to the far pods."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    frontend = Frontend("127.0.0.1", port, "UDP")
    route = Route(ObjectKey("default", "far"), ENDS)
    async with Nursery("proxy") as nursery:
        listener = UdpListener(frontend, route, LoopClock(), nursery.start, far.dial)
        try:
            yield listener, port
        finally:
            listener.close()


@asynccontextmanager
async def client_of(port: int) -> AsyncGenerator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.connect(("127.0.0.1", port))
        async with asyncio.timeout(LIMIT_S):
            yield made


async def exchange(end: socket.socket, data: bytes) -> bytes:
    end.send(data)
    return await asyncio.get_running_loop().sock_recv(end, 1 << 16)


async def answered(end: socket.socket) -> bytes:
    """The first answer to datagrams that may be lost."""
    while True:
        try:
            async with asyncio.timeout(0.2):
                return await exchange(end, b"again")
        except TimeoutError:
            continue


async def test_datagrams_pass_between_machines_whole() -> None:
    async with FarPods() as far:
        async with through(far) as (_, port), client_of(port) as one, client_of(port) as other:
            assert [await exchange(end, b"a") for end in (one, other)] == [b"1a", b"2a"]
            for data in (b"", b"b" * 60_000, b"c"):
                assert await exchange(one, data) == b"1" + data
            assert sorted(far.tunnels) == ["127.9.0.1", "127.9.0.2"]
        assert far.tunnels == [], "tunnels end with their listener"


async def test_client_of_an_unreachable_machine_gets_another() -> None:
    async with FarPods() as far, through(far) as (_, port), client_of(port) as end:
        far.away.add("127.9.0.1")
        assert await answered(end) == b"2again"


async def test_unreachable_machine_is_not_dialled_for_each_datagram() -> None:
    async with FarPods() as far, through(far) as (listener, port), client_of(port) as end:
        listener.lead_to(Route(ObjectKey("default", "far"), ENDS[:1]))
        far.away.add("127.9.0.1")
        for number in range(200):
            end.send(b"%d" % number)
            await asyncio.sleep(0)
        far.away.clear()
        assert await answered(end) == b"1again"
        assert len(far.dials) < 10, "back-off from half a second on"


async def test_client_of_an_ended_program_gets_another() -> None:
    async with FarPods() as far, through(far) as (_, port), client_of(port) as end:
        assert await exchange(end, b"a") == b"1a"
        far.end("127.9.0.1")
        far.away.add("127.9.0.1")
        assert await answered(end) == b"2again"


async def test_client_follows_the_endpoints() -> None:
    async with FarPods() as far, through(far) as (listener, port), client_of(port) as end:
        assert await exchange(end, b"a") == b"1a"
        listener.lead_to(Route(ObjectKey("default", "far"), ENDS[1:]))
        assert await exchange(end, b"b") == b"2b"


async def test_far_end_closes_an_idle_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram_tunnel, "IDLE_S", 0.05)
    async with FarPods() as far, through(far) as (_, port), client_of(port) as end:
        assert await exchange(end, b"a") == b"1a"
        await far.ended.wait()
        assert await answered(end) == b"2again"
