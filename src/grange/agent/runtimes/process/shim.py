"""The launcher and the shim: a tiny program that owns every process a container starts.

Run by ``launcher.Launcher`` with the interpreter's site packages off; it must import nothing but
its neighbours that import nothing else, and the standard library, and little of that, because its memory is paid per container.

Theory of operation. The *launcher* is one process next to the server. For each run it forks a
*shim* (a fork shares the interpreter's memory, so a shim costs a megabyte or two and starts in a
millisecond). The shim leads its own session, so nothing that happens to the server or its
terminal reaches it, and is a *child subreaper*: whatever the program leaves behind becomes a child
of the shim instead of the machine's first process. The program gets a separate session and process
group. Its output comes to the shim through pipes and goes to log files with rotation; because
the reader is the shim, the death of the server breaks no pipe. When the program ends, the shim
kills what is left until it has no child, writes how the program ended to ``state.json`` (fsync,
then rename) and ends as well. The end of the shim closes its sockets: that is how a server learns
of it, without polling.

The standard streams of a program are a ``Terminal`` or pipes (``program_streams``). Those of a command
that a server began for a client (``exec``) are the server's own and pass the shim by: it only starts
the command, reports how it ended, and kills it when the server hangs up.

A server talks to the shim over one ``SOCK_SEQPACKET`` connection, one JSON object a message:
``{"signal": n}`` or ``{"attach": ...}`` (with pipes to write to, see ``attachments``) in; the content of ``state.json`` out, once after connecting. The first connection
comes with the request to fork; a later server connects to the socket ``ctl`` in the directory and
is also given the anonymous memory that the first one wrote the specification to.

The launcher holds an exclusive lock that it inherited from the server, and a shim gives up its
share only when its state is on disk. A new server that gets the lock therefore sees every run that
the old one asked for.
"""

import ctypes
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from grange.agent.runtimes.process import (
    bind_filter,
    confinement,
    control_group,
    isolation,
    program_streams,
)
from grange.agent.runtimes.process.attachments import Attachments
from grange.agent.runtimes.process.child_processes import (
    Children,
    children_of,
    kill_children,
    kill_tree,
)
from grange.agent.runtimes.process.log_writer import LogWriter
from grange.agent.runtimes.process.program_streams import Ends, Streams

STATE_FILE = "state.json"
CONTROL_SOCKET = "ctl"

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_CHUNK = 65536  # the capacity of a pipe
_DRAIN_LIMIT_S = 5.0  # a process stuck in the kernel cannot hold the report of an exit longer
_MESSAGE_LIMIT = 65536
_PAUSE_S = 0.05
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)  # try again later

_libc = ctypes.CDLL(None, use_errno=True)


def boot_id() -> str:
    """Which boot of the machine this is: process ids mean nothing across boots."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; zero when there is no such process.

    A process id and its start time together are never used again within a boot.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            return int(source.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def write_state(directory_fd: int, state: dict[str, object], *, durable: bool) -> None:
    """Replace ``state.json`` atomically; durable ones survive a loss of power as well.

    Where there is no room for a second file, the one that is there is overwritten: it fits into
    the block that it has.
    """
    data = json.dumps(state).encode()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        _write_file(directory_fd, STATE_FILE + ".tmp", flags, data, durable=durable)
        os.replace(
            STATE_FILE + ".tmp", STATE_FILE, src_dir_fd=directory_fd, dst_dir_fd=directory_fd
        )
    except OSError:
        size = os.stat(STATE_FILE, dir_fd=directory_fd).st_size
        _write_file(directory_fd, STATE_FILE, os.O_WRONLY, data.ljust(size), durable=durable)


def _write_file(directory_fd: int, name: str, flags: int, data: bytes, *, durable: bool) -> None:
    fd = os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=directory_fd)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _spawn(
    spec: dict[str, object],
    streams: Streams,
    reports: tuple[int, int],
    see: Callable[[], None] | None,
) -> tuple[int, str, int]:
    """Fork and execute; answers (pid, "", 0), or (0, stage, errno) when that failed.

    The pid is that of the child. With a ``view`` that is the first process of its namespaces, and the
    program is a child of it.

    Args:
        spec: the program.
        streams: of the program.
        reports: where the first process reports how the program ended; and the socket to which the
            program sends the descriptor of its filter, if it gets one.
        see: called in the child to join the namespaces of another program.
    """
    failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become_program(spec, streams, reports, failed_w, see)
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
    reports: tuple[int, int],
    failed: int,
    see: Callable[[], None] | None,
) -> None:
    """In the child: execute the program, or write to ``failed`` why not. Never returns."""
    report, filters = reports
    stage = "prepare"
    try:
        stage = "limit"
        control_group.join(_groups_of(spec))
        stage = "prepare"
        os.setsid()
        signal.set_wakeup_fd(-1)
        stage = "isolate"
        if view := spec.get("view"):
            isolation.enter(view)  # type: ignore[arg-type]  # our own file
            if program := os.fork():
                isolation.reap(program, report)
            os.setsid()
        elif see is not None:
            see()
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
        path = str(spec["path"])
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


def _groups_of(spec: dict[str, object]) -> list[str]:
    found: list[str] = spec.get("groups") or []  # type: ignore[assignment]  # our own
    return found


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


class _Process:
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
        self._first = 0  # the process whose end is the end of the run
        self._is_isolated = False
        self._report = -1
        self._filter = -1
        self._address = ""
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
        see = None
        try:
            if spec.get("view"):
                isolation.separate()
            elif spec.get("join"):
                see = isolation.join(int(str(spec["join"])))
        except OSError as error:
            return "isolate", error.errno or 0
        try:
            if streams is None:
                streams, self.ends = _opened(spec)
            self._report, report_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            filters, filters_w = socket.socketpair()
            reports = (report_w, filters_w.fileno())
            self._first, stage, number = _spawn(spec, streams, reports, see)
        except OSError as error:  # no descriptor, no process
            return "prepare", error.errno or 0
        filters_w.close()
        self._take_filter(filters, str(spec.get("address") or ""))
        self.pid = self._first
        self._is_isolated = bool(spec.get("view"))
        if self._is_isolated and self._first:
            self.pid = next(iter(children_of(self._first)), self._first)
        os.close(report_w)
        streams.close()
        for fd in self.ends.outputs:
            self.poll.register(fd, select.POLLIN)
        return stage, number

    def _take_filter(self, filters: socket.socket, address: str) -> None:
        with filters:
            _, received, _, _ = socket.recv_fds(filters, _MESSAGE_LIMIT, 1)
        for self._filter in received:
            self._address = address
            os.set_inheritable(self._filter, False)  # noqa: FBT003  positional only
            self.poll.register(self._filter, select.POLLIN)

    def answer(self, fd: int, events: int) -> bool:
        """Whether it is the filter's descriptor; if a program waits there, it is answered."""
        if fd != self._filter:
            return False
        if events & select.POLLIN:
            bind_filter.answer(fd, self._address)
        else:  # nothing with the filter is left
            self.poll.unregister(fd)
            os.close(fd)
            self._filter = -1
        return True

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
                if ended[0] == self._first:
                    self.status = ended[1]
                    if self._is_isolated:
                        found = isolation.reported(self._report)
                        self.status = signal.SIGKILL if found is None else found
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


class _Shim:
    """One run of a container, from its start to the record of its end."""

    def __init__(
        self, spec: dict[str, object], memory: int, directory: str, first: socket.socket
    ) -> None:
        self._process = _Process()
        self._spec = spec
        self._memory = memory
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.chdir(directory)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(CONTROL_SOCKET)  # relative: a whole path may be too long for a socket
        self._listener.listen(4)
        self._connections: dict[int, socket.socket] = {}
        self._attachments = Attachments()
        self._logs = LogWriter(
            self._directory,
            max_bytes=int(str(spec["log_max_bytes"])),
            files=int(str(spec["log_files"])),
        )
        me = os.getpid()
        self._state: dict[str, object] = {
            "id": spec["id"],
            "boot": boot_id(),
            "shim": me,
            "shim_start": start_time(me),
            "started_at": time.time(),
        }
        self._first = first

    def run(self, lock_fd: int) -> None:
        """Start, serve, finish. ``lock_fd`` is closed as soon as the state is on disk."""
        groups = _groups_of(self._spec)
        stage, number = self._process.start(self._spec)
        if stage:
            control_group.remove(groups)
        if stage == "prepare" or number in _PASSING:  # nothing was started
            self._first.send(json.dumps({"unforked": number}).encode())
            return
        if stage:
            self._connections[self._first.fileno()] = self._first
            self._finish(
                {
                    "stage": stage,
                    "errno": number,
                    "path": self._spec["shown"],  # the path itself may hold a secret
                    "cwd": self._spec["cwd"],
                }
            )
            return
        pid = self._process.pid
        self._state.update(
            pid=pid, pid_start=start_time(pid), isolated=bool(self._spec.get("view"))
        )
        self._record(durable=False)
        os.close(lock_fd)
        self._greet(self._first)
        self._send(self._first)
        self._process.poll.register(self._listener, select.POLLIN)
        while not self._process.ended():
            for fd, events in self._process.poll.poll():
                if not self._process.answer(fd, events):
                    self._serve(fd)
        kill_children(self._process.children, _DRAIN_LIMIT_S)
        for fd in list(self._process.ends.outputs):
            while self._copy(fd):
                pass
        outcome = self._process.outcome()
        if outcome["exit_code"] and control_group.out_of_memory_kills(groups):
            outcome["reason"] = "OOMKilled"
        control_group.remove(groups)
        self._finish(outcome)

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(0.0)
        self._connections[connection.fileno()] = connection
        self._process.poll.register(connection, select.POLLIN)

    def _take_over(self) -> None:
        """A later server: it gets the state, and the specification as the first one wrote it."""
        try:
            connection = self._listener.accept()[0]
        except OSError:
            time.sleep(_PAUSE_S)  # no descriptor left; the server waits in the queue meanwhile
            return
        self._greet(connection)
        try:
            socket.send_fds(connection, [json.dumps(self._state).encode()], [self._memory])
        except OSError:
            return

    def _send(self, connection: socket.socket) -> None:
        self._answer(connection, self._state)

    def _answer(
        self, connection: socket.socket, message: dict[str, object], fds: tuple[int, ...] = ()
    ) -> None:
        try:
            socket.send_fds(connection, [json.dumps(message).encode()], fds)
        except OSError:
            return  # a server that went away, or does not listen, reads the file later

    def _serve(self, fd: int) -> None:
        if fd == self._process.wake_r:
            self._process.reap()
        elif fd in self._process.ends.outputs:
            self._copy(fd)
        elif fd == self._listener.fileno():
            self._take_over()
        elif fd in self._connections:
            self._execute(self._connections[fd])

    def _copy(self, fd: int) -> bool:
        stream = self._process.ends.outputs[fd]
        data = self._process.read(fd)
        if data:
            self._logs.feed(stream, data)
            for reader in self._attachments.feed(stream, data):
                self._answer(self._connections[reader], {"overrun": True})
        return data is not None

    def _execute(self, connection: socket.socket) -> None:
        fds: list[int] = []
        try:
            message, fds, _, _ = socket.recv_fds(connection, _MESSAGE_LIMIT, 2)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._process.poll.unregister(connection)
            self._attachments.remove(connection.fileno())
            del self._connections[connection.fileno()]
            connection.close()
            return
        order = json.loads(message)
        if "attach" in order:
            self._attach(connection, fds, takes_input=bool(order["attach"]))
        else:
            self._process.signal(int(order["signal"]))

    def _attach(self, connection: socket.socket, fds: list[int], *, takes_input: bool) -> None:
        """Copy further output to a server, and let it have the input: it writes there itself."""
        self._attachments.add(connection.fileno(), fds)
        ends = self._process.ends
        given = ends.input
        self._answer(connection, {"attached": True}, (given,) if given >= 0 else ())
        is_once = takes_input and self._spec.get("stdin_once") and not self._spec.get("tty")
        if is_once and given >= 0:
            os.close(given)  # the end of the server's is the end of the input
            ends.input = -1

    def _finish(self, outcome: dict[str, object]) -> None:
        self._logs.close()
        self._state.update(outcome, finished_at=time.time())
        self._record(durable=True)
        for connection in self._connections.values():
            self._send(connection)
        os.unlink(CONTROL_SOCKET, dir_fd=self._directory)

    def _record(self, *, durable: bool) -> None:
        try:
            write_state(self._directory, self._state, durable=durable)
        except OSError:
            # A broken disk: connected servers receive it all the same, and a server that comes
            # later finds the socket while the program runs, and "lost" after its end.
            return


def _run_command(spec: dict[str, object], connection: socket.socket) -> None:
    """Run a command to its end or its deadline and answer with its output.

    A closed connection is a server that no longer wants to know: the command is killed.
    """
    deadline = time.monotonic() + float(str(spec["timeout_s"]))
    limit = int(str(spec["output_limit"]))
    process = _Process()
    stage, number = process.start(spec)
    if stage == "prepare" or number in _PASSING:
        connection.send(json.dumps({"unforked": number}).encode())
        return
    if stage:
        connection.send(json.dumps({"stage": stage, "errno": number}).encode())
        return
    process.poll.register(connection, select.POLLIN)
    output = b""
    timed_out = abandoned = False
    while not (process.ended() or timed_out or abandoned):
        left = deadline - time.monotonic()
        for fd, _ in process.poll.poll(max(0.0, left) * 1000.0):
            if fd == process.wake_r:
                process.reap()
            elif fd in process.ends.outputs:
                output = (output + (process.read(fd) or b""))[:limit]
            else:
                abandoned = True
        timed_out = not process.ended() and time.monotonic() >= deadline
    if spec.get("join") and not process.ended():
        kill_tree(process.pid, _DRAIN_LIMIT_S)
    kill_children(process.children, _DRAIN_LIMIT_S)
    for fd in list(process.ends.outputs):
        while (data := process.read(fd)) is not None:
            output = (output + data)[:limit]
    answer = process.outcome()
    answer.update(output=output.decode("utf-8", "replace"), timed_out=timed_out)
    try:
        connection.send(json.dumps(answer).encode())
    except OSError:
        return


def _run_for_client(spec: dict[str, object], connection: socket.socket, streams: Streams) -> None:
    """Run a command whose streams a server has; report how it ended.

    A server that hangs up has it killed, and all that it started.
    """
    process = _Process()
    stage, number = process.start(spec, streams)
    if stage:
        unforked = stage == "prepare" or number in _PASSING
        answer = {"unforked": number} if unforked else {"stage": stage, "errno": number}
        connection.send(json.dumps(answer).encode())
        return
    connection.send(json.dumps({"began": process.pid}).encode())
    process.poll.register(connection, select.POLLIN)
    is_wanted = True
    while is_wanted and not process.ended():
        for fd, events in process.poll.poll():
            if fd == process.wake_r:
                process.reap()
            elif not process.answer(fd, events):
                is_wanted = False
    if spec.get("join"):
        kill_tree(process.pid, _DRAIN_LIMIT_S)
    kill_children(process.children, _DRAIN_LIMIT_S)
    try:
        connection.send(json.dumps(process.outcome()).encode())
    except OSError:
        return


def _fork_shim(request: dict[str, object], fds: list[int], lock_fd: int) -> None:
    """In the child: become the shim; never returns to the launcher's loop."""
    memory, connection_fd, *given = fds
    connection = socket.socket(fileno=connection_fd)
    spec = json.loads(os.pread(memory, os.fstat(memory).st_size, 0))
    if request["op"] == "start":
        try:
            made = _Shim(spec, memory, str(request["directory"]), connection)
        except OSError as error:  # no descriptor, no space: nothing was started
            connection.send(json.dumps({"unforked": error.errno}).encode())
            return
        made.run(lock_fd)
    else:
        os.close(lock_fd)
        try:
            if given:
                _run_for_client(spec, connection, Streams(given))
            else:
                _run_command(spec, connection)
        except OSError as error:
            connection.send(json.dumps({"unforked": error.errno}).encode())


def _refuse(connection_fd: int, number: int) -> None:
    with socket.socket(fileno=os.dup(connection_fd)) as connection:
        connection.send(json.dumps({"unforked": number}).encode())


def launch(control: socket.socket, lock_fd: int) -> None:
    """The launcher: fork a shim for every request until the server closes the connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended shims
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Nothing that was passed to this program may go on to the programs of containers: one that
    # outlives its shim would hold the shim's connection open, and its end would not be noticed.
    os.set_inheritable(control.fileno(), False)  # noqa: FBT003  positional only
    os.set_inheritable(lock_fd, False)  # noqa: FBT003  positional only
    _libc.prctl(_PR_SET_NAME, b"grange-launcher")
    while True:
        message, fds, _, _ = socket.recv_fds(control, _MESSAGE_LIMIT, 5)
        if not message:
            return
        for fd in fds:  # recv_fds ignores its flags in Python 3.11
            os.set_inheritable(fd, False)  # noqa: FBT003  positional only
        try:
            if os.fork() == 0:
                control.close()
                try:
                    _fork_shim(json.loads(message), fds, lock_fd)
                finally:
                    os._exit(0)
        except OSError as error:
            _refuse(fds[1], error.errno or 0)  # no process left; nothing was started
        for fd in fds:
            os.close(fd)


def main() -> None:
    """Be the launcher: the arguments are the descriptors of the connection and of the lock."""
    launch(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
