"""Streams of one SPDY/3.1 connection, of either side, over a ``MessageSocket``.

There is no flow control of single streams: while one of them holds ``BUFFER_BYTES`` that are not read,
nothing of the connection is read, as with the peers of the field.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from grange.base.message_socket import MessageSocket
from grange.base.spdy_frames import (
    CANCEL,
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
from grange.base.spdy_headers import SpdyError

BUFFER_BYTES = 256 * 1024
STREAMS_MAX = 512
_PIECE_BYTES = 32 * 1024


class SpdyStream:
    """One stream; to be closed. One task may read while another writes.

    Args:
        connection: that it belongs to.
        number: its number.
        headers: that it was opened with.
    """

    def __init__(
        self, connection: "SpdyConnection", number: int, headers: Mapping[str, str]
    ) -> None:
        self._connection = connection
        self.number = number
        self.headers = headers
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._changed = asyncio.Event()
        self._accepted = False
        self._is_reset = False
        self._has_ended = False
        self._output_ended = False

    async def read(self) -> bytes:
        """The next data; empty after its end.

        Raises:
            ConnectionResetError: the stream was reset.
        """
        while not self._pieces:
            if self._has_ended:
                return b""
            self._check()
            await self._changed.wait()
        piece = self._pieces.popleft()
        self._held -= len(piece)
        self._wake()
        return piece

    async def write(self, data: bytes) -> None:
        """Send data.

        Raises:
            ConnectionResetError: the stream was reset, or the connection is gone.
        """
        for at in range(0, len(data), _PIECE_BYTES):
            self._check()
            await self._connection.send(StreamData(self.number, data[at : at + _PIECE_BYTES]))

    async def end_output(self) -> None:
        """Let the peer see the end; idempotent."""
        if not (self._output_ended or self._is_reset):
            self._output_ended = True
            await self._connection.send(StreamData(self.number, b"", fin=True))
            self._connection.forget_if_over(self)

    async def close(self) -> None:
        """Let it go; idempotent.

        The peer sees a reset, but for a stream whose output has ended: a reset may outrun the last
        of it at the peer. What the peer still sends is ignored.
        """
        if not self.is_over:
            self.fail()
            self._connection.forget_if_over(self)
            if not self._output_ended:
                await self._connection.send(RstStream(self.number, CANCEL))

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent in either direction."""
        return self._is_reset or (self._has_ended and self._output_ended)

    async def put(self, data: bytes) -> None:
        """Take data of the peer; waits while too much of it is not read."""
        while self._held >= BUFFER_BYTES and not self._is_reset:
            await self._changed.wait()
        if data and not (self._is_reset or self._has_ended):
            self._pieces.append(data)
            self._held += len(data)
            self._wake()

    def finish(self) -> None:
        """The peer has ended its direction."""
        self._has_ended = True
        self._wake()

    def accept(self) -> None:
        """The peer has accepted the stream."""
        self._accepted = True
        self._wake()

    def fail(self) -> None:
        """It was reset, or the connection is gone; what has arrived can be read.

        Peers reset a stream at once after the last that they write.
        """
        self._is_reset = True
        self._wake()

    async def wait_accepted(self) -> None:
        """Wait until the peer has accepted the stream.

        Raises:
            ConnectionResetError: it has refused it.
        """
        while not self._accepted:
            self._check()
            await self._changed.wait()

    def _check(self) -> None:
        if self._is_reset:
            raise ConnectionResetError("the stream was reset")

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class SpdyConnection:
    """One side of a connection.

    Args:
        socket: carries its bytes; closed by its owner.
        is_server: whether this side accepts streams; else it opens them.
    """

    def __init__(self, socket: MessageSocket, *, is_server: bool) -> None:
        self._socket = socket
        self._is_server = is_server
        self._reader = FrameReader()
        self._writer = FrameWriter()
        self._sending = asyncio.Lock()
        self._streams: dict[int, SpdyStream] = {}
        self._last = 0 if is_server else -1
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._streams)

    async def run(self, accept: Callable[[SpdyStream], None]) -> None:
        """Read until the peer is gone or breaks the protocol; its streams are reset then.

        Args:
            accept: takes a new stream.

        Raises:
            ConnectionError: the peer is gone.
        """
        try:
            while (message := await self._socket.receive()) is not None:
                for frame in self._reader.feed(message):
                    await self._take(frame, accept)
        except SpdyError:
            await self.send(GoAway(max(self._last, 0), PROTOCOL_ERROR))
        finally:
            self._has_ended = True
            for stream in list(self._streams.values()):
                stream.fail()
            self._streams.clear()

    async def open(self, headers: Mapping[str, str]) -> SpdyStream:
        """Open a stream and wait until the peer accepts it; ``run`` has to run.

        Raises:
            ConnectionError: the peer refuses it, or is gone.
        """
        if self._has_ended:
            raise ConnectionResetError("the connection is closed")
        self._last += 2
        stream = self._streams[self._last] = SpdyStream(self, self._last, headers)
        await self.send(SynStream(stream.number, headers))
        await stream.wait_accepted()
        return stream

    async def send(self, frame: SpdyFrame) -> None:
        """Send a frame.

        Raises:
            ConnectionError: the peer is gone.
        """
        async with self._sending:  # frames with headers arrive in the order of their encoding
            await self._socket.send(self._writer.write(frame))

    def forget_if_over(self, stream: SpdyStream) -> None:
        """Let a stream go that has ended."""
        if stream.is_over:
            self._streams.pop(stream.number, None)

    async def _take(self, frame: SpdyFrame, accept: Callable[[SpdyStream], None]) -> None:
        if isinstance(frame, SynStream):
            await self._take_stream(frame, accept)
        elif isinstance(frame, SpdyPing):
            if frame.number % 2 == self._is_server:  # else it is the answer to one of ours
                await self.send(frame)
        elif not isinstance(frame, GoAway) and (stream := self._streams.get(frame.stream)):
            await self._take_part(frame, stream)

    async def _take_part(
        self, frame: SynReply | RstStream | StreamData, stream: SpdyStream
    ) -> None:
        if isinstance(frame, RstStream):
            stream.fail()
        elif isinstance(frame, SynReply):
            stream.accept()
        else:
            await stream.put(frame.data)
        if not isinstance(frame, RstStream) and frame.fin:
            stream.finish()
        self.forget_if_over(stream)

    async def _take_stream(self, frame: SynStream, accept: Callable[[SpdyStream], None]) -> None:
        if not self._is_server or frame.stream % 2 == 0 or frame.stream <= self._last:
            raise SpdyError(f"stream {frame.stream} cannot be opened")
        self._last = frame.stream
        if len(self._streams) >= STREAMS_MAX:
            await self.send(RstStream(frame.stream, REFUSED_STREAM))
            return
        stream = self._streams[frame.stream] = SpdyStream(self, frame.stream, frame.headers)
        await self.send(SynReply(frame.stream, {}))
        if frame.fin:
            stream.finish()
        accept(stream)
