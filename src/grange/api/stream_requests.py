"""What is asked of a pod's node by ``exec``, ``attach``, ``portforward`` and ``tunnel``."""

import msgspec

EXEC, ATTACH, PORT_FORWARD = "exec", "attach", "portforward"
TUNNEL = "tunnel"
"""One connection of a Service, from the proxy of another machine."""

TUNNEL_PROTOCOL = "v1.tunnel.grange.dev"
DATAGRAM_PROTOCOL = "v1.datagrams.grange.dev"
"""As ``TUNNEL``, for one client of UDP: each message is a datagram."""

OPERATIONS = frozenset({EXEC, ATTACH, PORT_FORWARD, TUNNEL})
"""Subresources that are connections, whatever method opens them."""


class StreamRequest(msgspec.Struct, frozen=True):
    """One connection into a pod.

    Attributes:
        operation: ``EXEC``, ``ATTACH``, ``PORT_FORWARD`` or ``TUNNEL``.
        container: its name; empty for ``PORT_FORWARD`` and ``TUNNEL``.
        command: of ``EXEC``; program and arguments.
        stdin: input will be sent.
        stdout, stderr: output is wanted.
        tty: with a terminal.
        ports: the one of ``TUNNEL``; of ``PORT_FORWARD``, where its protocol names them at the start.
        protocols: the subprotocols that the client speaks, best first; empty where it asks for no
            WebSocket.
    """

    operation: str
    container: str = ""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    ports: tuple[int, ...] = ()
    protocols: tuple[str, ...] = ()
