"""Runs commands of a job's launcher in its workers, where all of them are processes of one machine.

This file is part of a job's files and runs on its own: it imports the standard library only.

``serve [COMMAND...]`` runs in a worker, next to the command, and ends with it. ``connect HOST
COMMAND...`` is what the launcher calls in the place of ssh: the command runs in the worker, with the
worker's environment and the caller's input and output. Both sides accept their own user only, by the
credentials that the kernel has of a socket's other end, so nothing secret is needed.
"""

import os
import select
import signal
import socket
import struct
import sys
import time

_SHELL = "/bin/sh"
_COMMAND_MAX = 1 << 20
_PAUSE_S = 0.1
_UNREACHABLE = 255  # what ssh exits with


def _address(host: str) -> str:
    """An abstract address: it has no file, and ends with its process."""
    return f"\0grange-mpi/{os.environ['GRANGE_MPI_JOB']}/{host}"


def _is_own_user(connection: socket.socket) -> bool:
    size = struct.calcsize("3i")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", raw)
    return bool(uid == os.getuid())


def _exit_code(status: int) -> int:
    """As a shell has it: of a signal 128 and its number."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def serve(command: list[str]) -> int:
    """Run commands of the launcher until the worker's own one ends; without one, until killed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(_address(os.environ["GRANGE_MPI_HOST"]))
    listener.listen(socket.SOMAXCONN)
    own = 0
    if command:
        # The group has the signal and the command decides; it may come before this process goes on.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        own = os.fork()
        if own:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if not own:
            listener.close()
            os.execvp(command[0], command)
    ended = os.pidfd_open(own) if own else -1
    watched = [listener.fileno(), *([ended] if own else [])]
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([*watched, *children], [], [])
        for pidfd in ready:
            if pidfd in children:
                os.waitpid(children.pop(pidfd), 0)
                os.close(pidfd)
        if ended in ready:
            return _exit_code(os.waitpid(own, 0)[1])
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            if _is_own_user(connection):
                child = _fork_session(listener, connection)
                children[os.pidfd_open(child)] = child
            connection.close()


def _fork_session(listener: socket.socket, connection: socket.socket) -> int:
    child = os.fork()
    if child == 0:
        code = _UNREACHABLE
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            listener.close()
            code = _run(connection)
        finally:
            os._exit(code)
    return child


def _run(connection: socket.socket) -> int:
    """Run one command; it is ended when its caller goes before it."""
    message, fds, _, _ = socket.recv_fds(connection, _COMMAND_MAX, 3)
    # Returns once the command leads its process group: the caller may be gone by now.
    child = os.posix_spawn(
        _SHELL,
        [_SHELL, "-c", message.decode()],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)],
        setsid=True,
    )
    for fd in fds:
        os.close(fd)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, connection.fileno()], [], [])
    if ended not in ready:
        os.killpg(child, signal.SIGTERM)
    code = _exit_code(os.waitpid(child, 0)[1])
    connection.sendall(bytes([code]))
    return 0


def connect(host: str, command: str) -> int:
    """Run a command in a worker, once it is there; the exit code of the command."""
    limit_s = float(os.environ.get("GRANGE_MPI_WAIT_S", "300"))
    deadline = time.monotonic() + limit_s
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while connection.connect_ex(_address(host)) != 0:
        if time.monotonic() >= deadline:
            sys.stderr.write(f"worker {host} did not start within {limit_s:g} s\n")
            return _UNREACHABLE
        time.sleep(_PAUSE_S)
    if not _is_own_user(connection):
        sys.stderr.write(f"worker {host} is served by another user's process; not used\n")
        return _UNREACHABLE
    socket.send_fds(connection, [command.encode()], [0, 1, 2])
    answer = connection.recv(1)
    return answer[0] if answer else _UNREACHABLE


def main(arguments: list[str]) -> int:
    """Do what the first argument names."""
    if arguments[:1] == ["serve"]:
        return serve(arguments[1:])
    if arguments[:1] == ["connect"] and len(arguments) > 2:
        return connect(arguments[1], " ".join(arguments[2:]))
    sys.stderr.write("usage: mpi_agent.py serve [COMMAND...] | connect HOST COMMAND...\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
