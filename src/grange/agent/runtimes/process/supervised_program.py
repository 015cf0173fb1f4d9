"""A program, its streams, and everything below it, as its supervisor sees them. Part of the shim.

It imports nothing but its neighbours of the shim and the standard library.
"""

import ctypes
import errno
import os
import select
import signal
import socket
from collections.abc import Callable
from functools import partial

from grange.agent.runtimes.process import (
    bind_filter,
    confinement,
    control_group,
    first_process,
    isolation,
    program_streams,
)
from grange.agent.runtimes.process.child_processes import MARK, Children
from grange.agent.runtimes.process.program_streams import Ends, Streams

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_MESSAGE_LIMIT = 65536
_PORTS = "ports"  # of the pod's directory: see ``bind_filter``

_libc = ctypes.CDLL(None, use_errno=True)


def _spawn(
    spec: dict[str, object],
    streams: Streams,
    filters: int,
    see: Callable[[], None] | None,
) -> tuple[int, str, int]:
    """Fork and execute; answers (pid, "", 0), or (0, stage, errno) when that failed.

    Args:
        spec: the program.
        streams: of the program.
        filters: the socket to which the program sends the descriptor of its filter, if it gets one.
        see: called in the child to join the namespaces of another process.
    """
    failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become_program(spec, streams, filters, failed_w, see)
    os.close(failed_w)
    failure = os.read(failed_r, 256).decode()
    os.close(failed_r)
    if failure:
        os.waitpid(pid, 0)
        stage, _, reason = failure.partition(" ")
        return 0, stage, int(reason)
    return pid, "", 0


def _become_program(
    spec: dict[str, object],
    streams: Streams,
    filters: int,
    failed: int,
    see: Callable[[], None] | None,
) -> None:
    """In the child: execute the program, or write to ``failed`` why not. Never returns."""
    stage = "prepare"
    try:
        stage = "limit"
        control_group.join(groups_of(spec))
        stage = "prepare"
        os.setsid()
        signal.set_wakeup_fd(-1)
        stage = "isolate"
        if see is not None:
            see()
        if view := spec.get("view"):
            isolation.enter(view)  # type: ignore[arg-type]  # our own file
        stage = "prepare"
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        streams.install()
        os.umask(0o022)
        stage = "user" if spec.get("user") else "confine"
        if spec.get("user"):
            streams.give_to(int(spec["user"][0]))  # type: ignore[index]  # our own
        confinement.take_rights(spec)
        stage = "prepare"
        # Without its shim it must not run. Forgotten by the kernel when the user changes.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        stage = "chdir"
        os.chdir(str(spec["cwd"]))
        path = _located(str(spec["path"]), dict(spec["env"]).get("PATH", ""))  # type: ignore[call-overload]  # our own
        stage = "exec" if os.path.exists(path) else "find"
        if spec.get("address"):
            _send_filter(filters)
        command = [str(word) for word in spec["command"]]  # type: ignore[attr-defined]  # our own
        os.execve(path, command, dict(spec["env"]))  # type: ignore[call-overload]  # noqa: S606  our own; running programs is the point
    except OSError as error:
        os.write(failed, f"{stage} {error.errno}".encode())
    except ValueError:  # a NUL byte in an argument or a variable
        os.write(failed, f"{stage} {errno.EINVAL}".encode())
    finally:
        os._exit(127)


def groups_of(spec: dict[str, object]) -> list[str]:
    """The control groups of a program."""
    found: list[str] = spec.get("groups") or []  # type: ignore[assignment]  # our own
    return found


def _mark_of(spec: dict[str, object]) -> dict[str, str]:
    """The part of the program's environment by which the processes of a run are found."""
    environment = dict(spec["env"])  # type: ignore[call-overload]  # our own
    return {name: environment[name] for name in (MARK,) if name in environment}


def _located(path: str, search: str) -> str:
    """The file of a program; empty where a name alone is not in PATH."""
    if "/" in path:
        return path
    found = (os.path.join(directory, path) for directory in search.split(":"))
    programs = (file for file in found if os.path.isfile(file) and os.access(file, os.X_OK))
    return next(programs, "")


def _send_filter(connection: int) -> None:
    """Install the filter of bind and send its descriptor; without one where the kernel has none."""
    try:
        listeners = [bind_filter.install()]
    except OSError:
        listeners = []
    with socket.socket(fileno=connection) as target:
        socket.send_fds(target, [b"filter"], listeners)
    for listener in listeners:
        os.close(listener)


def _opened(spec: dict[str, object]) -> tuple[Streams, Ends]:
    if spec.get("tty"):
        return program_streams.terminal()
    return program_streams.pipes(stdin=bool(spec.get("stdin")))


def _poll_of(fd: int) -> select.poll:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll


class SupervisedProgram:
    """The program, its pipes, and everything below it, until all of it has ended."""

    def __init__(self) -> None:
        os.setsid()
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _libc.prctl(_PR_SET_NAME, b"grange-shim")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self.signal(signal.SIGTERM))
        self.children = Children()
        self.pid = 0
        self._first = 0  # process of its namespaces
        self._alive = -1  # which ends when this is closed
        self._filter = -1
        self._address = ""
        self._ports = ""
        self.status: int | None = None
        self.ends = Ends({}, -1)
        self.poll = select.poll()
        self.poll.register(self.wake_r, select.POLLIN)

    def start(self, spec: dict[str, object], streams: Streams | None = None) -> tuple[str, int]:
        """Execute the program; answers ("", 0), or the stage and errno of the failure.

        Args:
            spec: the program.
            streams: of the program, whose other ends a server has; None opens them.
        """
        see: Callable[[], None] | None = None
        try:
            if spec.get("netns"):
                isolation.join_network(str(spec["netns"]))
            if spec.get("view"):
                isolation.separate()
                self._first, self._alive = first_process.start(groups_of(spec), _mark_of(spec))
                see = partial(isolation.join_first, self._first)
            elif spec.get("join"):
                see = isolation.join(int(str(spec["join"])))
        except OSError as error:
            return "isolate", error.errno or 0
        stage, number = self._begin(spec, streams, see)
        if stage and self._first:  # it would hold the control groups
            os.kill(self._first, signal.SIGKILL)
            os.waitpid(self._first, 0)
        return stage, number

    def _begin(
        self, spec: dict[str, object], streams: Streams | None, see: Callable[[], None] | None
    ) -> tuple[str, int]:
        try:
            if streams is None:
                streams, self.ends = _opened(spec)
            filters, filters_w = socket.socketpair()
            self.pid, stage, number = _spawn(spec, streams, filters_w.fileno(), see)
        except OSError as error:  # no descriptor, no process
            return "prepare", error.errno or 0
        filters_w.close()
        self._address = str(spec.get("address") or "")
        self._ports = os.path.join(str(spec.get("pod")), _PORTS)
        self._take_filter(filters)
        streams.close()
        for fd in self.ends.outputs:
            self.poll.register(fd, select.POLLIN)
        return stage, number

    def _take_filter(self, filters: socket.socket) -> None:
        with filters:
            _, received, _, _ = socket.recv_fds(filters, _MESSAGE_LIMIT, 1)
        for self._filter in received:
            os.set_inheritable(self._filter, False)  # noqa: FBT003  positional only
            self.poll.register(self._filter, select.POLLIN)

    def answer(self, fd: int, events: int) -> bool:
        """Whether it is the filter's descriptor; if a program waits there, it is answered."""
        if fd != self._filter:
            return False
        if events & select.POLLIN:
            bind_filter.answer(fd, self._address, self._ports)
        else:  # nothing with the filter is left
            self.poll.unregister(fd)
            os.close(fd)
            self._filter = -1
        return True

    def answer_the_left(self) -> None:
        """Answer what a command has left in its container, until nothing of it is left.

        Without an answer it could neither bind nor connect.
        """
        for fd in self.ends.outputs:
            os.close(fd)
        self.ends.outputs.clear()
        while self._filter >= 0:
            for fd, events in _poll_of(self._filter).poll():
                self.answer(fd, events)

    def signal(self, number: int) -> None:
        """Send a signal to the program's process group, unless the program was reaped."""
        if self.pid and self.status is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return

    def read(self, fd: int) -> bytes | None:
        """What a pipe holds; None when there is nothing now or any more."""
        data = program_streams.read(fd)
        if data == b"":
            self.poll.unregister(fd)
            os.close(fd)
            del self.ends.outputs[fd]
            if fd == self.ends.input:
                self.ends.input = -1
        return data or None

    def reap(self) -> None:
        """Collect ended children and remember how the program itself ended."""
        try:
            while os.read(self.wake_r, 512):
                pass
        except BlockingIOError:
            pass
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.status = ended[1]
        except ChildProcessError:
            return

    def ended(self) -> bool:
        """Whether the program itself has ended and was reaped."""
        return self.status is not None

    def outcome(self) -> dict[str, object]:
        """Exit code and signal as ``state.json`` has them."""
        status = self.status if self.status is not None else 137 << 8
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return {"exit_code": 128 + number, "signal": number}
        return {"exit_code": os.WEXITSTATUS(status), "signal": 0}
