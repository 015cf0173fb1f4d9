"""Streams over one connection: data, ends, refusals, and a peer that is gone."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.spdy_connection import BUFFER_BYTES, STREAMS_MAX, SpdyConnection, SpdyStream
from grange.base.spdy_frames import (
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    FrameReader,
    FrameWriter,
    GoAway,
    RstStream,
    SpdyFrame,
    SpdyPing,
    StreamData,
    SynReply,
    SynStream,
)
from grange.base.tasks import Nursery


class Pair:
    """Both sides of a connection; ``accepted`` are the streams as the server has them."""

    def __init__(self, nursery: Nursery) -> None:
        self.ours, self.theirs = socket_pair()
        self.client = SpdyConnection(self.ours, is_server=False)
        self.server = SpdyConnection(self.theirs, is_server=True)
        self.accepted: asyncio.Queue[SpdyStream] = asyncio.Queue()
        nursery.start(self.client.run(self.accepted.put_nowait), name="client")
        nursery.start(self.server.run(self.accepted.put_nowait), name="server")

    async def opened(self, **headers: str) -> tuple[SpdyStream, SpdyStream]:
        stream = await self.client.open(headers)
        return stream, await self.accepted.get()


@pytest.fixture
async def pair() -> AsyncGenerator[Pair, None]:
    async with Nursery("test") as nursery:
        found = Pair(nursery)
        yield found
        await found.ours.close()
        await found.theirs.close()


async def test_data_and_headers_cross(pair: Pair) -> None:
    for number in (1, 2):
        there, here = await pair.opened(port=str(number))
        assert here.headers == {"port": str(number)}
        await there.write(b"ping")
        assert await here.read() == b"ping"
        await here.write(b"pong")
        assert await there.read() == b"pong"


async def test_what_came_before_a_reset_can_be_read(pair: Pair) -> None:
    """Container runtimes reset a stream at once after the last that they write."""
    there, here = await pair.opened()
    await here.write(b"last")
    await here.close()
    await there.end_output()
    assert await there.read() == b"last"
    with pytest.raises(ConnectionResetError):
        await there.read()


async def test_stream_is_forgotten_when_both_sides_end(pair: Pair) -> None:
    there, here = await pair.opened()
    await there.write(b"last")
    await there.end_output()
    await there.end_output()
    assert [await here.read(), await here.read()] == [b"last", b""]
    await here.write(b"answer")
    await here.end_output()
    assert [await there.read(), await there.read()] == [b"answer", b""]
    await here.close()
    await there.close()
    assert (len(pair.client), len(pair.server)) == (0, 0)


async def test_closing_resets_the_other_side(pair: Pair) -> None:
    there, here = await pair.opened()
    await there.write(b"lost")
    await there.close()
    with pytest.raises(ConnectionResetError):
        while await here.read():
            pass
    with pytest.raises(ConnectionResetError):
        await here.write(b"x")
    assert (len(pair.client), len(pair.server)) == (0, 0)


async def test_sender_waits_for_its_reader(pair: Pair) -> None:
    there, here = await pair.opened()
    sent = 0

    async def send() -> None:
        nonlocal sent
        for _ in range(64):
            await there.write(bytes(32 * 1024))
            sent += 32 * 1024
        await there.end_output()

    async with Nursery("sender") as nursery:
        nursery.start(send(), name="send")
        for _ in range(500):
            await asyncio.sleep(0)
        assert BUFFER_BYTES <= sent <= 4 * BUFFER_BYTES
        received = 0
        while piece := await here.read():
            received += len(piece)
        assert received == 64 * 32 * 1024


async def test_reader_that_closes_frees_the_connection(pair: Pair) -> None:
    there, here = await pair.opened()
    async with Nursery("sender") as nursery:
        nursery.start(here.close(), name="close")
        with pytest.raises(ConnectionResetError):
            while True:
                await there.write(bytes(32 * 1024))
    after, _ = await pair.opened()
    await after.write(b"x")


async def test_streams_end_with_their_connection(pair: Pair) -> None:
    there, _ = await pair.opened()
    await pair.theirs.close()
    with pytest.raises(ConnectionResetError):
        await there.read()
    with pytest.raises(ConnectionResetError):
        await pair.client.open({})


class Peer:
    """Frames by hand against a server."""

    def __init__(self, socket: MessageSocket) -> None:
        self._socket = socket
        self._reader, self._writer = FrameReader(), FrameWriter()

    async def send(self, frame: SpdyFrame) -> None:
        await self._socket.send(self._writer.write(frame))

    async def next(self) -> SpdyFrame | None:
        message = await self._socket.receive()
        return None if message is None else next(self._reader.feed(message))


@pytest.fixture
async def peer() -> AsyncGenerator[Peer, None]:
    ours, theirs = socket_pair()

    async def serve() -> None:
        await SpdyConnection(theirs, is_server=True).run(lambda _: None)
        await theirs.close()

    async with Nursery("test") as nursery:
        nursery.start(serve(), name="server")
        yield Peer(ours)
        await ours.close()


@pytest.mark.parametrize("number", [2, 1, 0])
async def test_wrong_numbers_of_streams_end_the_connection(peer: Peer, number: int) -> None:
    await peer.send(SynStream(1, {}))
    assert await peer.next() == SynReply(1, {})
    await peer.send(SynStream(number, {}))
    assert await peer.next() == GoAway(1, PROTOCOL_ERROR)
    assert await peer.next() is None


async def test_too_many_streams_are_refused(peer: Peer) -> None:
    for at in range(STREAMS_MAX):
        await peer.send(SynStream(2 * at + 1, {}))
        assert isinstance(await peer.next(), SynReply)
    await peer.send(SynStream(2 * STREAMS_MAX + 1, {}))
    assert await peer.next() == RstStream(2 * STREAMS_MAX + 1, REFUSED_STREAM)


async def test_pings_come_back_and_unknown_streams_are_ignored(peer: Peer) -> None:
    for frame in (StreamData(9, b"x"), RstStream(9, 1), GoAway(0), SpdyPing(2), SpdyPing(7)):
        await peer.send(frame)
    assert await peer.next() == SpdyPing(7)
