"""A TCP proxy on loopback that holds what it is sent, for as long as a test asks."""

import queue
import socket
import threading
from contextlib import suppress

_CHUNK = 4096
_WINDOW = 2048  # bytes that a kernel takes for a reader who does not read


class HoldingProxy:
    """Carries connections to a port of the same host.

    Args:
        target: the port.
        reads: whether it reads what it holds, as a proxy does; otherwise the sender's kernel is left
            with what the small window does not take, as in a partition.

    Attributes:
        held_bytes: how much of what it has read came while it held.
    """

    def __init__(self, target: int, *, reads: bool) -> None:
        self._target, self._reads = target, reads
        self._passes = threading.Event()
        self._passes.set()
        self.held_bytes = 0
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._server = socket.socket()
        if not reads:
            self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)
        self._server.bind(("127.0.0.1", 0))
        self._server.listen()
        self.port: int = self._server.getsockname()[1]
        self._start(self._accept)

    def hold(self) -> None:
        """From now on nothing reaches the server."""
        self._passes.clear()

    def deliver(self) -> None:
        """What is held and what comes reaches the server."""
        self._passes.set()

    def end(self) -> None:
        """Close everything."""
        self._passes.set()
        for one in [self._server, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]  # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                held: queue.SimpleQueue[bytes] = queue.SimpleQueue()
                self._start(self._read, near, held)
                self._start(self._write, far, held)
                self._start(self._answer, far, near)

    def _read(self, near: socket.socket, held: queue.SimpleQueue[bytes]) -> None:
        with suppress(OSError):  # the sender is gone; what it sent is not
            while self._reads or self._passes.wait():
                data = near.recv(_CHUNK)
                if not data:
                    break
                if not self._passes.is_set():
                    self.held_bytes += len(data)
                held.put(data)
        held.put(b"")

    def _write(self, far: socket.socket, held: queue.SimpleQueue[bytes]) -> None:
        with suppress(OSError):
            while data := held.get():
                self._passes.wait()
                far.sendall(data)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(_CHUNK):
                near.sendall(data)
