"""The messages of ``portforward`` over a WebSocket.

There are two ways. With ``TUNNEL`` the WebSocket carries SPDY and any number of connections: each has
a stream for data and one for an error, with the headers below. With the others every port of the
request has one connection and two channels: port number *i* has 2*i* for data and 2*i* + 1 for an error,
as text. The first message on each of them is the port, in two bytes, least significant first.
"""

import struct
from collections.abc import Mapping, Sequence

TUNNEL = "SPDY/3.1+portforward.k8s.io"
CHANNELS = ("v4.channel.k8s.io", "portforward.k8s.io")
FORWARD_PROTOCOLS = (TUNNEL, *CHANNELS)
DATA, ERROR = "data", "error"
PORTS_MAX = 64  # channels are bytes

_TYPE, _PORT_HEADER, _REQUEST = "streamtype", "port", "requestid"
_PORT = struct.Struct("<H")


def greetings(ports: Sequence[int]) -> list[bytes]:
    """The first messages of a server."""
    return [
        bytes((channel,)) + _PORT.pack(port)
        for at, port in enumerate(ports)
        for channel in (2 * at, 2 * at + 1)
    ]


def stream_headers(kind: str, port: int, request: int) -> dict[str, str]:
    """The headers of one of the two streams of a connection.

    Args:
        kind: ``DATA`` or ``ERROR``.
        port: of the pod.
        request: number of the connection, the same in both.
    """
    return {_TYPE: kind, _PORT_HEADER: str(port), _REQUEST: str(request)}


def read_headers(headers: Mapping[str, str]) -> tuple[str, int, str] | None:
    """Kind, port and connection of a stream; None where they are malformed."""
    kind, port = headers.get(_TYPE, ""), headers.get(_PORT_HEADER, "")
    request = headers.get(_REQUEST, "")
    if kind not in {DATA, ERROR} or not request or not is_port(port):
        return None
    return kind, int(port), request


def is_port(text: str) -> bool:
    """Whether a text is the number of a TCP port."""
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 1 << 16
