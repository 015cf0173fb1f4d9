"""Frames of SPDY/3.1, without I/O: bytes in, frames out, and back.

``kubectl port-forward`` speaks it inside of a WebSocket. Frames that carry nothing for such
connections (settings, window updates, unknown ones) are skipped: neither side of them controls the
flow of single streams.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from grange.base.spdy_headers import HeaderDecoder, HeaderEncoder, SpdyError

FRAME_MAX_BYTES = 1024 * 1024
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL = 1, 3, 5
"""Statuses of ``RstStream``."""

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_VERSION, _CONTROL, _FIN = 3, 1 << 31, 1
_HEAD = struct.Struct(">II")
_ONE, _TWO = struct.Struct(">I"), struct.Struct(">II")
_SIZE_MASK, _ID_MASK = (1 << 24) - 1, (1 << 31) - 1


class SynStream(NamedTuple):
    """Opens a stream."""

    stream: int
    headers: Mapping[str, str]
    fin: bool = False


class SynReply(NamedTuple):
    """Accepts a stream."""

    stream: int
    headers: Mapping[str, str]
    fin: bool = False


class RstStream(NamedTuple):
    """Ends a stream in both directions at once."""

    stream: int
    status: int


class SpdyPing(NamedTuple):
    """To be sent back as it is."""

    number: int


class GoAway(NamedTuple):
    """No more streams will be accepted."""

    last_stream: int
    status: int = 0


class StreamData(NamedTuple):
    """Data of a stream; ``fin`` ends this direction."""

    stream: int
    data: bytes
    fin: bool = False


SpdyFrame = SynStream | SynReply | RstStream | SpdyPing | GoAway | StreamData


class FrameReader:
    """Reads the frames of a peer."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers = HeaderDecoder()

    def feed(self, data: bytes) -> Iterator[SpdyFrame]:
        """The frames that these bytes complete; to be read to its end.

        Raises:
            SpdyError: the bytes are no frames, or too large.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD.size:
            first, second = _HEAD.unpack_from(buffer)
            size = second & _SIZE_MASK
            if size > FRAME_MAX_BYTES:
                raise SpdyError(f"a frame has {size} bytes, more than {FRAME_MAX_BYTES}")
            end = _HEAD.size + size
            if len(buffer) < end:
                return
            body = bytes(buffer[_HEAD.size : end])
            del buffer[:end]
            fin = bool(second >> 24 & _FIN)
            if not first & _CONTROL:
                yield StreamData(first & _ID_MASK, body, fin)
                continue
            if first >> 16 & 0x7FFF != _VERSION:
                raise SpdyError(f"not version {_VERSION} of SPDY: {first >> 16 & 0x7FFF}")
            try:
                frame = self._control(first & 0xFFFF, body, fin=fin)
            except struct.error as error:
                raise SpdyError(f"a frame is too short: {error}") from error
            if frame is not None:
                yield frame

    def _control(self, kind: int, body: bytes, *, fin: bool) -> SpdyFrame | None:
        if kind == _SYN_STREAM:
            stream, _ = _TWO.unpack_from(body)
            return SynStream(stream & _ID_MASK, self._headers.decode(body[10:]), fin)
        if kind in {_SYN_REPLY, _HEADERS}:
            (stream,) = _ONE.unpack_from(body)
            headers = self._headers.decode(body[4:])
            # Further headers mean nothing here, but the next block is compressed with them.
            return SynReply(stream & _ID_MASK, headers, fin) if kind == _SYN_REPLY else None
        if kind == _RST_STREAM:
            stream, status = _TWO.unpack_from(body)
            return RstStream(stream & _ID_MASK, status)
        if kind == _PING:
            return SpdyPing(*_ONE.unpack_from(body))
        if kind == _GOAWAY:
            stream, status = _TWO.unpack_from(body)
            return GoAway(stream & _ID_MASK, status)
        return None


class FrameWriter:
    """Writes frames; the order of those with headers is that of the calls."""

    def __init__(self) -> None:
        self._headers = HeaderEncoder()

    def write(self, frame: SpdyFrame) -> bytes:
        """The bytes of a frame."""
        if isinstance(frame, StreamData):
            flags = _FIN if frame.fin else 0
            return _HEAD.pack(frame.stream, flags << 24 | len(frame.data)) + frame.data
        if isinstance(frame, SynStream):
            body = _TWO.pack(frame.stream, 0) + bytes(2) + self._headers.encode(frame.headers)
            return _control(_SYN_STREAM, body, fin=frame.fin)
        if isinstance(frame, SynReply):
            body = _ONE.pack(frame.stream) + self._headers.encode(frame.headers)
            return _control(_SYN_REPLY, body, fin=frame.fin)
        if isinstance(frame, RstStream):
            return _control(_RST_STREAM, _TWO.pack(*frame))
        if isinstance(frame, SpdyPing):
            return _control(_PING, _ONE.pack(*frame))
        return _control(_GOAWAY, _TWO.pack(*frame))


def _control(kind: int, body: bytes, *, fin: bool = False) -> bytes:
    flags = _FIN if fin else 0
    return _HEAD.pack(_CONTROL | _VERSION << 16 | kind, flags << 24 | len(body)) + body
