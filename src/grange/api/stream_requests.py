"""What is asked of a pod's node by ``exec``, ``attach`` and ``portforward``."""

import msgspec

EXEC, ATTACH, PORT_FORWARD = "exec", "attach", "portforward"
OPERATIONS = frozenset({EXEC, ATTACH, PORT_FORWARD})
"""Subresources that are connections, whatever method opens them."""


class StreamRequest(msgspec.Struct, frozen=True):
    """One connection into a pod.

    Attributes:
        operation: ``EXEC``, ``ATTACH`` or ``PORT_FORWARD``.
        container: its name; empty for ``PORT_FORWARD``.
        command: of ``EXEC``; program and arguments.
        stdin: input will be sent.
        stdout, stderr: output is wanted.
        tty: with a terminal.
        ports: of ``PORT_FORWARD``, where its protocol names them at the start.
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
