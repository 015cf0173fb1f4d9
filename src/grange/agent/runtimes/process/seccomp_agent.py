"""Answers bind(2) and connect(2) of the containers of a pod: a seccomp agent, as the OCI runtime specification names it.

Forked by the launcher for a pod from images, so it imports little. The container runtime (runc) connects to
its socket for each filter that it installs, that of a container or that of a command of ``exec``, and sends
the descriptor at which programs with that filter wait. What the answers are is in ``bind_filter``.

It ends when no node agent is connected and no program has one of the filters: at once if its path has been removed,
else after a time in which a container may be started that a node agent asked for before it was killed. So it goes
on when the node agent is killed, and the next one connects to the same socket. When it is killed itself, calls that wait
and later ones fail with ENOSYS; the node agent notices it by its connection.
"""

import ctypes
import os
import select
import signal
import socket
import time

from grange.agent.runtimes.process import bind_filter

_PR_SET_NAME = 15
_QUEUE = 64
_MESSAGE_LIMIT = 65536  # the state of a container, which is not looked at
_PAUSE_S = 0.05
_UNNEEDED_LIMIT_MS = 120_000  # of a call that creates or starts a container

_libc = ctypes.CDLL(None, use_errno=True)


def run(spec: dict[str, object], agent: socket.socket) -> None:
    """Listen, report that, and answer until nothing needs it any more.

    Args:
        spec: ``socket``, a path to listen at, ``address`` of the pod, and ``ports``, see ``bind_filter.answer``.
        agent: the connection of the node agent.

    Raises:
        OSError: it cannot listen.
    """
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _libc.prctl(_PR_SET_NAME, b"grange-seccomp")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(spec["socket"]))
    listener.listen(_QUEUE)
    agent.send(b"{}")
    answers = _Answers(listener, agent, str(spec["address"]), str(spec["ports"]))
    while answers.are_needed() or os.path.exists(str(spec["socket"])):
        if not answers.serve():
            return


class _Answers:
    def __init__(
        self, listener: socket.socket, agent: socket.socket, address: str, ports: str
    ) -> None:
        self._listener = listener
        self._address = address
        self._ports = ports
        self._connections = {agent.fileno(): agent}
        self._filters: set[int] = set()
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(agent, select.POLLIN)

    def are_needed(self) -> bool:
        return bool(self._connections or self._filters)

    def serve(self) -> bool:
        """Whether there was something to do before the limit for nothing at all."""
        found = self._poll.poll(None if self.are_needed() else _UNNEEDED_LIMIT_MS)
        for fd, events in found:
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._connections:
                self._receive(self._connections[fd])
            elif events & select.POLLIN:
                bind_filter.answer(fd, self._address, self._ports)
            else:  # nothing with the filter is left
                self._poll.unregister(fd)
                self._filters.discard(fd)
                os.close(fd)
        return bool(found)

    def _accept(self) -> None:
        try:
            connection = self._listener.accept()[0]
        except OSError:
            time.sleep(_PAUSE_S)  # no descriptor left; who connects waits in the queue meanwhile
            return
        self._connections[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)

    def _receive(self, connection: socket.socket) -> None:
        try:
            message, found, _, _ = socket.recv_fds(connection, _MESSAGE_LIMIT, 1)
        except OSError:
            message, found = b"", []
        for fd in found:
            self._filters.add(fd)
            self._poll.register(fd, select.POLLIN)
        if not message:
            self._poll.unregister(connection)
            del self._connections[connection.fileno()]
            connection.close()
