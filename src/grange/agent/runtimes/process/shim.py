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

The launcher also forks what answers bind(2) for pods from images, which have no shim (``seccomp_agent``).

A server talks to the shim over one ``SOCK_SEQPACKET`` connection, one JSON object a message:
``{"signal": n}`` or ``{"attach": ...}`` (with pipes to write to, see ``attachments``) in; the content of ``state.json`` out, once after connecting. The first connection
comes with the request to fork; a later server connects to the socket ``ctl-…`` in the directory and
is also given the anonymous memory that the first one wrote the specification to.

The launcher holds an exclusive lock that it inherited from the server, and a shim gives up its
share only when its state is on disk. A new server that gets the lock therefore sees every run that
the old one asked for.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import sys
import time

from grange.agent.runtimes.process import bind_filter, control_group, seccomp_agent
from grange.agent.runtimes.process.attachments import Attachments
from grange.agent.runtimes.process.child_processes import kill_children, kill_tree
from grange.agent.runtimes.process.log_writer import LogWriter
from grange.agent.runtimes.process.program_streams import Streams
from grange.agent.runtimes.process.supervised_program import SupervisedProgram, groups_of

STATE_FILE = "state.json"
CONTROL_SOCKET = "ctl"

_PR_SET_NAME = 15
_DRAIN_LIMIT_S = 5.0  # a process stuck in the kernel cannot hold the report of an exit longer
_MESSAGE_LIMIT = 65536
_SMALL = 4096  # bytes of a file of the kernel
_PAUSE_S = 0.05
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)  # try again later

_libc = ctypes.CDLL(None, use_errno=True)


def boot_id() -> str:
    """Which boot of the machine this is: process ids mean nothing across boots."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; zero when there is no such process.

    A process id and its start time together are never used again within a boot.
    """
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _read(path: str) -> bytes:
    """A small file of the kernel.

    Without ``open``, whose layers and codecs take half a megabyte of each shim.
    """
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(source, _SMALL)
    finally:
        os.close(source)


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


class _Shim:
    """One run of a container, from its start to the record of its end."""

    def __init__(
        self, spec: dict[str, object], memory: int, directory: str, first: socket.socket
    ) -> None:
        self._process = SupervisedProgram()
        self._spec = spec
        self._memory = memory
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.chdir(directory)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(CONTROL_SOCKET)  # relative: a whole path may be too long for a socket
        # Landlock lets a program connect to every socket that it can name. The kernel's list of
        # sockets has the name of the bind, and directories of others cannot be listed.
        self._control = f"{CONTROL_SOCKET}-{os.urandom(16).hex()}"
        os.rename(CONTROL_SOCKET, self._control)
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
        groups = groups_of(self._spec)
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
                    "search": self._spec["search"],
                    "cwd": self._spec["cwd"],
                    "isolated": bool(self._spec.get("view")),
                }
            )
            return
        pid = self._process.pid
        self._state.update(
            pid=pid,
            pid_start=start_time(pid),
            isolated=bool(self._spec.get("view") or self._spec.get("join")),
            address=self._spec.get("address", ""),
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
        os.unlink(self._control, dir_fd=self._directory)

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
    process = SupervisedProgram()
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
        for fd, events in process.poll.poll(max(0.0, left) * 1000.0):
            if fd == process.wake_r:
                process.reap()
            elif fd in process.ends.outputs:
                output = (output + (process.read(fd) or b""))[:limit]
            elif not process.answer(fd, events):
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
    _report(connection, answer)
    process.answer_the_left()


def _run_for_client(spec: dict[str, object], connection: socket.socket, streams: Streams) -> None:
    """Run a command whose streams a server has; report how it ended.

    A server that hangs up has it killed, and all that it started.
    """
    process = SupervisedProgram()
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
    _report(connection, process.outcome())
    process.answer_the_left()


def _report(connection: socket.socket, answer: dict[str, object]) -> None:
    """Send the end of a command to the server that waits for it, if it still does."""
    with connection, contextlib.suppress(OSError):
        connection.send(json.dumps(answer).encode())


def _fork_shim(request: dict[str, object], fds: list[int], lock_fd: int) -> None:
    """In the child: become the shim; never returns to the launcher's loop."""
    memory, connection_fd, *given = fds
    connection = socket.socket(fileno=connection_fd)
    if request["op"] == "probe bind":
        os.close(lock_fd)
        connection.send(json.dumps({"errno": bind_filter.probe()}).encode())
        return
    spec = json.loads(os.pread(memory, os.fstat(memory).st_size, 0))
    if request["op"] == "answer binds":
        os.close(lock_fd)
        os.close(memory)
        try:
            seccomp_agent.run(spec, connection)
        except OSError as error:
            connection.send(json.dumps({"unforked": error.errno}).encode())
        return
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
