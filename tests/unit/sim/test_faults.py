"""The bad network works as described, repeatably, and stops on request."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from grange.api.http import ADMIN, Request, Response
from grange.api.status import ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.transports.inprocess import InProcess
from grange.sim.faults import FaultyTransport, Network, NetworkFaults

LINES = [b'{"n":1}\n', b'{"n":2}\n', b'{"n":3}\n']


class Server:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.open = 0

    async def handle(self, request: Request) -> Response:
        self.seen.append(request.path)
        if request.path == "/watch":
            return Response(200, chunks=self.lines())
        return Response(200, b"ok")

    async def lines(self) -> AsyncGenerator[bytes, None]:
        self.open += 1
        try:
            for line in LINES:
                yield line
        finally:
            self.open -= 1


def connected(
    server: Server, clock: Clock, rng: Stream, faults: NetworkFaults
) -> tuple[Network, FaultyTransport]:
    network = Network(clock=clock, rng=rng, faults=faults)
    return network, network.transport(InProcess(server.handle, ADMIN), "agent")


async def read(chunks: AsyncIterator[bytes] | None) -> list[bytes]:
    assert isinstance(chunks, AsyncGenerator)
    async with contextlib.aclosing(chunks):
        return [chunk async for chunk in chunks]


async def test_perfect_network_changes_nothing(clock: Clock, rng: Stream) -> None:
    server = Server()
    network, transport = connected(server, clock, rng, NetworkFaults())
    assert (await transport.send(Request("GET", "/x"))).body == b"ok"
    assert await read((await transport.send(Request("GET", "/watch"))).chunks) == LINES
    assert clock.monotonic() == 0.0
    assert network.history == []


async def test_latency_is_bounded_each_way(clock: Clock, rng: Stream) -> None:
    _, transport = connected(Server(), clock, rng, NetworkFaults(latency_s=0.5))
    await transport.send(Request("GET", "/x"))
    assert 0.0 < clock.monotonic() <= 1.0


async def test_lost_request_did_nothing(clock: Clock, rng: Stream) -> None:
    server = Server()
    network, transport = connected(server, clock, rng, NetworkFaults(lose_request=1.0))
    with pytest.raises(ServiceUnavailable):
        await transport.send(Request("GET", "/x"))
    with pytest.raises(Timeout):  # who wrote cannot know whether it happened
        await transport.send(Request("POST", "/x"))
    assert server.seen == []
    assert network.history == ["0.000 agent lost GET /x", "0.000 agent lost POST /x"]


async def test_lost_answer_did_something_and_its_stream_is_closed(
    clock: Clock, rng: Stream
) -> None:
    server = Server()
    _, transport = connected(server, clock, rng, NetworkFaults(lose_answer=1.0))
    for path in ("/x", "/watch"):
        with pytest.raises(Timeout):
            await transport.send(Request("GET", path))
    assert server.seen == ["/x", "/watch"]
    assert server.open == 0
    assert clock.monotonic() == 10.0


async def test_cut_stream_delivers_a_prefix_and_breaks(clock: Clock, rng: Stream) -> None:
    server = Server()
    _, transport = connected(server, clock, rng, NetworkFaults(cut_stream=0.5))
    broken = 0
    for _ in range(50):
        response = await transport.send(Request("GET", "/watch"))
        got = b""
        assert isinstance(response.chunks, AsyncGenerator)
        try:
            async with contextlib.aclosing(response.chunks) as chunks:
                async for chunk in chunks:
                    got += chunk
        except ServiceUnavailable:
            broken += 1
        assert b"".join(LINES).startswith(got)
        assert server.open == 0
    assert 0 < broken <= 50


async def test_repeated_chunks_are_whole_lines(clock: Clock, rng: Stream) -> None:
    _, transport = connected(Server(), clock, rng, NetworkFaults(repeat_chunk=1.0))
    got = await read((await transport.send(Request("GET", "/watch"))).chunks)
    assert got == [line for line in LINES for _ in range(2)]


async def test_partition_cuts_one_component_off_until_it_heals(clock: Clock, rng: Stream) -> None:
    server = Server()
    network, transport = connected(server, clock, rng, NetworkFaults())
    other = network.transport(InProcess(server.handle, ADMIN), "scheduler")
    response = await transport.send(Request("GET", "/watch"))
    network.partition("agent")
    with pytest.raises(ServiceUnavailable):
        await transport.send(Request("GET", "/x"))
    with pytest.raises(ServiceUnavailable):
        await read(response.chunks)
    assert (await other.send(Request("GET", "/x"))).body == b"ok"
    network.heal("agent")
    assert (await transport.send(Request("GET", "/x"))).body == b"ok"
    assert server.open == 0


async def test_held_write_arrives_whatever_becomes_of_its_sender(clock: Clock, rng: Stream) -> None:
    server = Server()
    network, transport = connected(server, clock, rng, NetworkFaults(answer_timeout_s=5))
    network.hold_writes("agent", most_s=60.0)
    async with Nursery() as nursery:
        nursery.start(network.run())
        await clock.sleep(0.0)
        assert (await transport.send(Request("GET", "/read"))).body == b"ok"
        with pytest.raises(Timeout):
            await transport.send(Request("DELETE", "/x"))
        assert (server.seen, network.held) == (["/read"], 1)
        network.cut("agent")
        network.partition("agent")
        network.calm()
        await clock.sleep(60.0)
        assert (server.seen, network.held) == (["/read", "/x"], 0)
        nursery.cancel()


async def test_held_writes_pass_again_when_they_are_not_held_any_more(
    clock: Clock, rng: Stream
) -> None:
    server = Server()
    network, transport = connected(server, clock, rng, NetworkFaults())
    network.hold_writes("agent", chance=0.0, deletions=1.0, most_s=60.0)
    assert (await transport.send(Request("POST", "/x"))).body == b"ok"
    network.pass_writes("agent")
    assert (await transport.send(Request("DELETE", "/x"))).body == b"ok"
    assert network.held == 0


async def test_calm_ends_all_faults(clock: Clock, rng: Stream) -> None:
    faults = NetworkFaults(latency_s=1, lose_request=1, cut_stream=1, repeat_chunk=1)
    network, transport = connected(Server(), clock, rng, faults)
    network.partition("agent")
    network.calm()
    assert await read((await transport.send(Request("GET", "/watch"))).chunks) == LINES
    assert clock.monotonic() == 0.0


async def test_randomness_is_each_component_s_own(clock: Clock, rng: Stream) -> None:
    """Traffic of one component must not move the faults of another."""

    async def losses(noise: int) -> list[bool]:
        network = Network(clock=clock, rng=Stream(1), faults=NetworkFaults(lose_request=0.5))
        server = Server()
        noisy = network.transport(InProcess(server.handle, ADMIN), "noisy")
        quiet = network.transport(InProcess(server.handle, ADMIN), "quiet")
        result = []
        for _ in range(20):
            for _ in range(noise):
                with contextlib.suppress(ServiceUnavailable):
                    await noisy.send(Request("GET", "/x"))
            try:
                await quiet.send(Request("GET", "/x"))
                result.append(False)
            except ServiceUnavailable:
                result.append(True)
        return result

    assert await losses(0) == await losses(3)
