"""One attempt as the server sees it: the connection to its shim and the record on disk."""

import asyncio
import errno
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from grange.agent.container_runtime import (
    COMPLETED,
    ERROR,
    EXIT_KILLED,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    START_ERROR,
    STATUS_UNKNOWN,
    ContainerID,
    ContainerLimits,
    Program,
    Run,
    RuntimeFailedError,
)
from grange.agent.runtimes.process import programs, shim
from grange.api import timestamps

_MESSAGE_LIMIT = 65536
_TMP = "/tmp/"  # noqa: S108  compared
_UNKNOWN_MESSAGE = (
    "the supervisor of this process is gone (killed, or the machine restarted); "
    "what was left of it has been killed and how it ended is not known"
)


def number_of(state: Mapping[str, object], key: str) -> int:
    """An integer of a state; zero where it is missing."""
    value = state.get(key, 0)
    return int(value) if isinstance(value, int | float) else 0


def _instant(state: Mapping[str, object], key: str) -> datetime:
    value = state.get(key, 0.0)
    return timestamps.from_seconds(float(value) if isinstance(value, int | float) else 0.0)


def start_failure(state: Mapping[str, object]) -> tuple[int, str]:
    """Exit code and message for a program that could not be executed.

    Args:
        state: with ``stage`` (``chdir`` or ``exec``), ``errno``, ``path`` and ``cwd``.
    """
    number = number_of(state, "errno")
    why = os.strerror(number)
    if state.get("stage") == "chdir":
        hint = _unseen(state, str(state.get("cwd")))
        return EXIT_NOT_EXECUTABLE, f'working directory "{state.get("cwd")}": {why}{hint}'
    if state.get("stage") == "user":
        return EXIT_NOT_EXECUTABLE, (
            f"cannot run it as the user that it asks for: {why}; the agent needs the rights of root "
            "to change the user and to mount"
        )
    if state.get("stage") == "limit":
        return EXIT_NOT_EXECUTABLE, (
            f"cannot limit what it uses: {why}; its control group may have been removed by another "
            "program"
        )
    if state.get("stage") == "confine":
        return EXIT_NOT_EXECUTABLE, (
            f"cannot take the rights from it that its securityContext forbids: {why}; the agent "
            "needs the rights of root for capabilities and groups"
        )
    if state.get("stage") == "isolate":
        return EXIT_NOT_EXECUTABLE, (
            f"cannot isolate it: {why}; a mountPath may be in the way of something, or "
            "the kernel does not allow it any more: start the agent with --isolation none"
        )
    path = str(state.get("path"))
    if state.get("stage") == "find":
        where = ": there is no such file" if "/" in path else f" in PATH={state.get('search', '')}"
        return EXIT_NOT_FOUND, f'program "{path}" not found{where}{_unseen(state, path)}'
    if number == errno.ENOENT:  # the file is there: its "#!" line names something that is not
        return EXIT_NOT_FOUND, f'cannot execute "{path}": the interpreter it names is missing'
    if number == errno.ENOEXEC:
        why = 'not a program for this machine, nor a script with a "#!" line'
    return EXIT_NOT_EXECUTABLE, f'cannot execute "{path}": {why}'


def answer(connection: socket.socket, limit_s: float) -> dict[str, object] | str:
    """What a shim answers to a probe, or why there is no answer. Blocks.

    Args:
        connection: to the shim.
        limit_s: how long it is waited for, in seconds.
    """
    connection.settimeout(limit_s)
    try:
        found: dict[str, object] = json.loads(connection.recv(_MESSAGE_LIMIT) or b"{}")
    except OSError as error:
        return str(error.strerror or error)
    return found


def _unseen(state: Mapping[str, object], path: str) -> str:
    """Why a path of the machine is not there, and what to do."""
    if not state.get("isolated") or not path.startswith(_TMP):
        return ""
    return "; the pod has its own /tmp: mount the directory as a hostPath volume, or start the agent in it"


def run_of(target: ContainerID, state: Mapping[str, object]) -> Run:
    """The run that a state describes."""
    started = _instant(state, "started_at")
    if "finished_at" not in state:
        message = str(state.get("message", ""))
        return Run(target, started, pid=number_of(state, "pid"), message=message)
    code = number_of(state, "exit_code")
    reason = str(state.get("reason") or (COMPLETED if code == 0 else ERROR))
    return Run(
        target,
        started,
        finished_at=_instant(state, "finished_at"),
        exit_code=code,
        signal=number_of(state, "signal"),
        reason=reason,
        message=str(state.get("message", "")),
        pid=number_of(state, "pid"),
    )


def refused(state: Mapping[str, object], code: int, message: str) -> dict[str, object]:
    """The state of an attempt whose program could not be executed."""
    return {**state, "exit_code": code, "signal": 0, "reason": START_ERROR, "message": message}


def explained(state: dict[str, object]) -> dict[str, object]:
    """The state, with a shim's errno turned into an exit code, a reason and a message."""
    if "stage" not in state or "reason" in state:
        return state
    return refused(state, *start_failure(state))


def lost(state: Mapping[str, object], now: datetime) -> dict[str, object]:
    """The state of an attempt whose shim is gone without a report."""
    return {
        **state,
        "exit_code": EXIT_KILLED,
        "signal": signal.SIGKILL,
        "reason": STATUS_UNKNOWN,
        "message": _UNKNOWN_MESSAGE,
        "started_at": state.get("started_at", now.timestamp()),
        "finished_at": now.timestamp(),
    }


def connect(directory: Path) -> socket.socket | None:
    """A connection to the shim of an attempt; None when there is none.

    Raises:
        OSError: it cannot be found out now: the shim has too many connections that it does not
            accept, or this process has no descriptor left.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(0.0)
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:  # through the descriptor, because a whole path may be too long for a socket
            # Shims of earlier versions have no secret in the name.
            found = [name for name in os.listdir(fd) if name.startswith(shim.CONTROL_SOCKET)]
            name = found[0] if found else shim.CONTROL_SOCKET
            connection.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError:
        connection.close()
        raise
    return connection


def unanswered(state: Mapping[str, object], now: datetime) -> dict[str, object]:
    """The state of an attempt whose shim is there and does not answer: it runs, as far as known."""
    pid = number_of(state, "shim")
    which = f"grange-shim, process {pid}" if pid else "grange-shim"
    message = (
        f"the supervisor of this container ({which}) does not answer: it is stopped, or its disk "
        "is; the container counts as running until it answers"
    )
    return {"started_at": now.timestamp(), **state, "message": message}


def program_from(memory: int) -> Program:
    """What a shim runs, from the memory that it was passed in; closes the descriptor."""
    try:
        spec = json.loads(os.pread(memory, os.fstat(memory).st_size, 0))
    finally:
        os.close(memory)
    user = spec.get("user")
    return Program(
        tuple(spec["command"]),
        spec["env"],
        spec["cwd"],
        search=spec.get("search", ""),
        user=tuple(user) if user else None,
        limits=ContainerLimits(*spec.get("limits", ())),
        confinement=programs.confinement_from(spec.get("rights") or {}),
        stdin=bool(spec.get("stdin")),
        stdin_once=bool(spec.get("stdin_once")),
        tty=bool(spec.get("tty")),
    )


class ShimConnection:
    """Messages from a shim, until it ends.

    Args:
        connection: non-blocking; owned from here on.
        on_message: called with every message of the shim, and a descriptor that came with it or -1;
            the descriptor is its to close.
        on_end: called once, when the shim has closed the connection.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_message: Callable[[dict[str, object], int], None],
        on_end: Callable[[], None],
    ) -> None:
        self._socket = connection
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._readable)

    def _readable(self) -> None:
        fds: list[int] = []
        try:
            message, fds, _, _ = socket.recv_fds(self._socket, _MESSAGE_LIMIT, 1)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message:
            self._on_message(json.loads(message), fds[0] if fds else -1)
        else:
            self.close()
            self._on_end()

    def signal(self, number: int) -> None:
        """Ask the shim to signal its program's process group; nothing happens if it is gone."""
        try:
            self._socket.send(json.dumps({"signal": int(number)}).encode())
        except OSError:
            return

    def attach(self, descriptors: list[int], *, takes_input: bool) -> None:
        """Ask the shim to copy its program's output to two pipes, and for its input.

        Raises:
            RuntimeFailedError: the shim is gone.
        """
        try:
            message = json.dumps({"attach": takes_input}).encode()
            socket.send_fds(self._socket, [message], descriptors)
        except OSError as error:
            raise RuntimeFailedError(f"the container cannot be attached to: {error}") from error

    def close(self) -> None:
        """Stop listening; idempotent."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class ContainerRun:
    """An attempt that is starting, running or over.

    Args:
        target: which.
        program: what it runs; None where that is not known any more.

    Attributes:
        run: what is known of it; None while it is starting.
        refusal: why nothing was started; empty for none.
        connection: to its shim, while there is one.
        reconnect: the next try to connect, where the last one could not be made.
        is_isolated: whether the program has its own view of the machine.
        address: which its programs get that listen on all; empty where they get every address.
        shim: process id and start time of its shim; zeros where they are not known.
        changed: set when ``run`` or ``refusal`` has changed.
        ended: set when nothing of it is left.
    """

    def __init__(self, target: ContainerID, program: Program | None = None) -> None:
        self.target = target
        self.program = program
        self.run: Run | None = None
        self.refusal = ""
        self.connection: ShimConnection | None = None
        self.is_isolated = False
        self.address = ""
        self.shim = (0, 0)
        self.reconnect: asyncio.TimerHandle | None = None
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()

    def take(self, state: dict[str, object], memory: int = -1) -> None:
        """Apply the state from a shim or a file.

        Args:
            state: what is reported.
            memory: a descriptor of what it runs; -1 where that is known.
        """
        if memory >= 0:
            self.program = program_from(memory)
        self.shim = number_of(state, "shim"), number_of(state, "shim_start")
        self.is_isolated = bool(state.get("isolated"))
        self.address = str(state.get("address") or "")
        if "unforked" in state:
            self.refusal = os.strerror(number_of(state, "unforked"))
        else:
            self.run = run_of(self.target, explained(state))
        self.changed.set()

    def disconnect(self) -> None:
        """Stop listening; the container goes on."""
        if self.connection is not None:
            self.connection.close()
        if self.reconnect is not None:
            self.reconnect.cancel()

    def finish(self) -> None:
        """Note that nothing of it is left."""
        self.connection = None
        self.changed.set()
        self.ended.set()
