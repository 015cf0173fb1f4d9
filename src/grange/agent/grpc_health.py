"""The one call of a gRPC probe, ``grpc.health.v1.Health/Check``, over HTTP/2 without encryption.

Just enough of HTTP/2 (RFC 9113) to send one request and to find the message of the answer. Headers
of the answer are not decoded, as their compression needs another table: an answer without a
message is one that failed.
"""

import asyncio
import struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_STREAM = 1
_MESSAGE_LIMIT = 1024
_FRAMES = 100  # more than any server sends before its answer
_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


class GrpcError(Exception):
    """The answer is not one of a health service: how."""


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame as it goes over the wire."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next frame.

    Raises:
        GrpcError: it is longer than a server may send.
        asyncio.IncompleteReadError: the connection ended.
    """
    head = await reader.readexactly(9)
    length = int.from_bytes(head[:3])
    if length > 16384:
        raise GrpcError("the answer is not HTTP/2")
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return Frame(kind, flags, stream & 0x7FFFFFFF, await reader.readexactly(length))


def request(authority: str, service: str) -> bytes:
    """Everything that the client sends.

    Args:
        authority: host and port.
        service: whose health; empty for the whole server's.
    """
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "grange-probe"),
    ]
    block = b"".join(b"\x00" + _text(key) + _text(value) for key, value in headers)
    body = b"\x00" + struct.pack(">I", len(message)) + message
    return (
        PREFACE
        + frame(_SETTINGS, 0, 0)
        + frame(_HEADERS, _END_HEADERS, _STREAM, block)
        + frame(_DATA, _END_STREAM, _STREAM, body)
    )


async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Read until the answer is there; the name of the status, ``SERVING`` for a healthy service.

    Raises:
        GrpcError: the server answers with something else.
    """
    body = b""
    try:
        for _ in range(_FRAMES):
            found = await read_frame(reader)
            if found.kind == _SETTINGS and not found.flags & _ACK:
                writer.write(frame(_SETTINGS, _ACK, 0))
            elif found.kind == _PING and not found.flags & _ACK:
                writer.write(frame(_PING, _ACK, 0, found.payload))
            elif found.kind == _GOAWAY:
                raise GrpcError("the server closed the connection")
            elif found.kind == _RST_STREAM and found.stream == _STREAM:
                raise GrpcError("the server refused the call")
            elif found.kind == _DATA and found.stream == _STREAM:
                body += _unpadded(found)
                if len(body) > _MESSAGE_LIMIT:
                    raise GrpcError("the answer is too long")
                if (status := _status(body)) is not None:
                    return status
            if (
                found.stream == _STREAM
                and found.kind in (_DATA, _HEADERS)
                and found.flags & _END_STREAM
            ):
                raise GrpcError(
                    "the call failed: the server has no health service, or does not know this one"
                )
    except asyncio.IncompleteReadError as error:
        raise GrpcError("the server closed the connection") from error
    raise GrpcError("the server does not come to its answer")


def _unpadded(found: Frame) -> bytes:
    if not found.flags & _PADDED:
        return found.payload
    return (
        found.payload[1 : max(1, len(found.payload) - found.payload[0])] if found.payload else b""
    )


def _status(body: bytes) -> str | None:
    """The status in a message; None while it is not there as a whole."""
    if len(body) < 5 or len(body) < 5 + (length := int.from_bytes(body[1:5])):
        return None
    if body[0]:
        raise GrpcError("the answer is compressed")
    message = body[5 : 5 + length]
    number = 0  # a field that has its default is left out
    if message:
        if len(message) < 2 or message[0] != 0x08:
            raise GrpcError("the answer is not one of a health service")
        number = message[1]
    return _STATUSES[number] if number < len(_STATUSES) else f"status {number}"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _text(text: str) -> bytes:
    """A string of a header, as HPACK has it without compression (RFC 7541, 5.2)."""
    data = text.encode()
    length = len(data)
    if length < 0x7F:
        return bytes([length]) + data
    return b"\x7f" + _varint(length - 0x7F) + data
