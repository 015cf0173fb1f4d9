"""Messages in both directions between two parties, whatever carries them.

A WebSocket of the listener, one of a client and a pair in memory all have this shape, so what is
served over one of them is tested without sockets.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Protocol

from grange.base.tasks import Nursery

_QUEUED_MESSAGES = 16


class MessageSocket(Protocol):
    """One end of a connection that carries whole messages, in order."""

    async def receive(self) -> bytes | None:
        """The next message; None when the other end has closed or is gone."""

    async def send(self, message: bytes) -> None:
        """Send a message; waits while the other end takes nothing.

        Raises:
            ConnectionError: the other end is gone.
        """

    async def close(self) -> None:
        """Close in order: what was sent arrives first. Idempotent."""


Upgrade = Callable[[MessageSocket], Coroutine[object, object, None]]
"""Serves one connection; closes the socket before it returns."""


class _Direction:
    """A bounded queue of messages that either side may end."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.ended = False
        self.changed = asyncio.Event()

    def wake(self) -> None:
        """Let both sides look again."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class _End:
    def __init__(self, incoming: _Direction, outgoing: _Direction) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> bytes | None:
        queue = self._incoming
        while not queue.messages:
            if queue.ended:
                return None
            await queue.changed.wait()
        message = queue.messages.popleft()
        queue.wake()
        return message

    async def send(self, message: bytes) -> None:
        queue = self._outgoing
        while len(queue.messages) >= _QUEUED_MESSAGES and not queue.ended:
            await queue.changed.wait()
        if queue.ended:
            raise ConnectionResetError("the connection is closed")
        queue.messages.append(message)
        queue.wake()

    async def close(self) -> None:
        self._incoming.messages.clear()
        for queue in (self._incoming, self._outgoing):
            queue.ended = True
            queue.wake()


def socket_pair() -> tuple[MessageSocket, MessageSocket]:
    """Two ends of one connection in memory; a full queue lets its sender wait."""
    there, back = _Direction(), _Direction()
    return _End(back, there), _End(there, back)


async def relay(one: MessageSocket, other: MessageSocket) -> None:
    """Carry messages between two sockets until either is closed; closes both."""

    async def carry(source: MessageSocket, target: MessageSocket) -> None:
        with suppress(ConnectionError):
            while (message := await source.receive()) is not None:
                await target.send(message)
        await target.close()
        await source.close()

    try:
        async with Nursery("relay") as nursery:
            nursery.start(carry(one, other), name="there")
            nursery.start(carry(other, one), name="back")
    finally:
        await one.close()
        await other.close()
