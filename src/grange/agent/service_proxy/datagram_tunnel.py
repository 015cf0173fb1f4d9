"""Datagrams of one client as messages, to a pod on another machine and there from them.

A message is a datagram, an empty one too. As datagrams may be, they are lost where the other side takes
none, and a tunnel that carries nothing for a while ends.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from grange.agent.service_proxy.flow_table import IDLE_S
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.message_socket import MessageSocket, Upgrade, socket_pair
from grange.base.tasks import Nursery

DATAGRAM_MAX = 65_535
_QUEUED = 256


class DatagramTunnel:
    """The near end, for one client.

    Args:
        receive: called with each datagram that comes back.

    Attributes:
        has_received: whether one came back.
    """

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self.has_received = False
        self._receive = receive
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether this end has closed it."""
        return self._closed.is_set()

    def send(self, data: bytes) -> None:
        """Send a datagram; it is lost while too many wait."""
        if not self._queue.full():
            self._queue.put_nowait(data)

    def close(self) -> None:
        """End it; what waits is lost, also where the other machine takes nothing."""
        self._closed.set()

    async def run(self, upgrade: Upgrade) -> None:
        """Carry until it is closed or the other end is gone.

        Args:
            upgrade: leads to the far end.
        """
        near, far = socket_pair()
        try:
            async with Nursery("datagrams") as nursery:
                nursery.start(upgrade(far), name="connection to the other machine")
                nursery.start(self._send(near), name="datagrams to messages")
                nursery.start(self._cancel_when_closed(nursery), name="end of the tunnel")
                while (data := await near.receive()) is not None:
                    self.has_received = True
                    self._receive(data)
                nursery.cancel()
        except* (OSError, GrangeError):
            pass  # the other machine is gone; the client's next datagram opens another tunnel

    async def _send(self, near: MessageSocket) -> None:
        while True:
            await near.send(await self._queue.get())

    async def _cancel_when_closed(self, nursery: Nursery) -> None:
        await self._closed.wait()
        nursery.cancel()


async def exit_datagrams(messages: MessageSocket, host: str, port: int, clock: Clock) -> None:
    """Serve the far end, which sends to a pod, until either side ends it or it is idle."""
    loop = asyncio.get_running_loop()
    used = clock.monotonic()

    async def receive() -> None:
        nonlocal used
        while True:
            data = await loop.sock_recv(pod, DATAGRAM_MAX)
            used = clock.monotonic()
            await messages.send(data)

    async def close_idle() -> None:
        """The near end closes what is idle; this is for one that is gone without doing so."""
        while (left_s := used + 2 * IDLE_S - clock.monotonic()) > 0:
            await clock.sleep(left_s)
        await messages.close()

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pod:
        pod.settimeout(0)
        try:
            pod.connect((host, port))
            async with Nursery("datagrams of a pod") as nursery:
                nursery.start(receive(), name="datagrams to messages")
                nursery.start(close_idle(), name="idle time")
                while (data := await messages.receive()) is not None:
                    used = clock.monotonic()
                    with suppress(BlockingIOError):  # lost, as datagrams may be
                        pod.send(data)
                nursery.cancel()
        except* OSError:
            pass  # nothing listens there; the end of the tunnel is the answer
