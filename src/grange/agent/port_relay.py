"""Carries one connection of a client to a port of a pod."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from grange.agent.container_streams import PortConnection
from grange.base.tasks import Nursery


class ClientInput(Protocol):
    """What the client sends on one connection."""

    async def read(self) -> bytes:
        """The next data; empty after its end.

        Raises:
            ConnectionResetError: the client gave the connection up.
        """


async def relay_port(
    connection: PortConnection, incoming: ClientInput, send: Callable[[bytes], Awaitable[None]]
) -> None:
    """Carry data in both directions until the program ends its side, or the client gives up.

    Args:
        connection: to the program; closed by its owner.
        incoming: from the client.
        send: to the client.

    Raises:
        ConnectionError: the client is gone.
    """
    async with Nursery("port") as nursery:

        async def take_input() -> None:
            try:
                while data := await incoming.read():
                    # A program that has broken the connection has ended its output, too.
                    with suppress(ConnectionError):
                        await connection.write(data)
                connection.end_output()
            except ConnectionResetError:
                nursery.cancel()

        nursery.start(take_input(), name="input")
        while data := await _read(connection):
            await send(data)
        nursery.cancel()


async def _read(connection: PortConnection) -> bytes:
    """What the program sends; a broken connection has ended."""
    try:
        return await connection.read()
    except ConnectionError:
        return b""
