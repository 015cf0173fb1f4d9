"""Run the program in processes that are forked from one that has loaded its modules.

Loading Python and modules takes most of the processor time of a short verb and of the start of a
control plane, and tests run hundreds of the one and a hundred of the other. Each still has its own
process, arguments, streams and environment, and so does what ``grange up --detach`` leaves in the
background. Tests of how the program starts, of signals and of
terminals start it with ``GRANGE`` instead.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from grange.app import gc_tuning

ROOT = Path(__file__).resolve().parents[2]
REQUEST_MAX = 1 << 17
STREAMS = 3
_MOMENT_S = 0.001
VERB_MODULES = ("grange.app.main", "grange.client.transports.http_transport")
SERVER_MODULES = (
    *("grange.app.up", "grange.app.controlplane", "grange.app.manager"),
    *("grange.app.evidence_service", "grange.scheduler.service", "uvloop"),
)


class WarmProcess:
    """A process of the program, as ``subprocess.Popen`` would show it.

    Attributes:
        pid: its process id.
    """

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self._status = status
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it runs, and forget it."""
        if self._code is None:
            self.send_signal(signal.SIGKILL)
            self.wait(None)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout_s: float | None) -> int:
        """Wait for its end; the exit code, negative for a signal.

        Raises:
            TimeoutError: it has not ended.
        """
        if self._code is None:
            self._status.settimeout(timeout_s)
            self._code = _number(self._status)
            self._status.close()
        return self._code


class WarmCli:
    """The process that forks, and the requests to it.

    Args:
        path: where it listens for ``warm_client.py``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(str(path))
            door.listen()
            descriptors = [asked.fileno(), door.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.warm_cli", *map(str, descriptors)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=descriptors,
                # A process with threads should not fork.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )

    def run(
        self, *words: str, stdin: str = "", timeout_s: float = 300.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``grange`` with these words to its end, like ``subprocess.run``."""
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
        ):
            given.write(stdin)
            given.seek(0)
            streams = [given.fileno(), output.fileno(), errors.fileno()]
            with self._start(words, streams) as process:  # ends it at a time limit of the test, too
                code = process.wait(timeout_s)
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess([*words], code, output.read(), errors.read())

    def start(self, *words: str, stdout: int, stderr: int) -> WarmProcess:
        """Start ``grange`` with these words, which runs on; stdin is empty.

        Args:
            words: the arguments.
            stdout: a descriptor for the output.
            stderr: a descriptor for errors.
        """
        with open(os.devnull) as nothing:
            return self._start(words, [nothing.fileno(), stdout, stderr])

    def _start(self, words: Sequence[str], streams: list[int]) -> WarmProcess:
        request = {"words": words, "directory": os.getcwd(), "environment": dict(os.environ)}
        status, reporting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with reporting:
            descriptors = [*streams, reporting.fileno()]
            socket.send_fds(self._asking, [json.dumps(request).encode()], descriptors)
        try:
            return WarmProcess(_number(status), status)
        except BaseException:
            status.close()
            raise

    def close(self) -> None:
        """End the process."""
        self._asking.close()
        self._process.wait()


class _Detached(WarmProcess):
    """A control plane in the background, as ``daemon`` sees its ``Popen``."""

    returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with suppress(TimeoutError):
            self.returncode = self.wait(_MOMENT_S)
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def _start_detached(path: str, settings: Any, output: Path) -> _Detached:
    """Request what ``grange up --detach`` starts from the process that listens at a path."""
    from grange.app import daemon, flags

    request = {
        "words": daemon.command_line(settings)[4:],
        "directory": os.getcwd(),
        "environment": {**os.environ, **flags.variables(settings)},
    }
    status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with open(os.devnull) as nothing, output.open("wb") as log:
        status.connect(path)
        streams = [nothing.fileno(), log.fileno(), log.fileno()]
        socket.send_fds(status, [json.dumps(request).encode()], streams)
    return _Detached(_number(status), status)


def _number(status: socket.socket) -> int:
    """The next number that the process which forks reports."""
    return int(status.recv(64))


def _load(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)


def _load_verbs() -> None:
    """Load what verbs load when they run."""
    import grange.cli.verbs as package

    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    _load([*VERB_MODULES, *(module.name for module in found)])


class _Forks:
    """Forks for each request, and reports the ends of the children."""

    def __init__(self, asked: socket.socket, door: socket.socket) -> None:
        self._asked, self._door = asked, door
        self._poll = select.poll()
        for listened in (asked, door):
            self._poll.register(listened, select.POLLIN)
        self._children: dict[int, tuple[int, int]] = {}  # pid and status, by the pid's descriptor

    def serve(self) -> list[str] | None:
        """Until there are no more requests; returns the words of a request in its child."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._door.fileno():
                    client, _ = self._door.accept()
                    message, received, _, _ = socket.recv_fds(client, REQUEST_MAX, STREAMS)
                    received = [*received, client.detach()]
                elif descriptor == self._asked.fileno():
                    message, received, _, _ = socket.recv_fds(self._asked, REQUEST_MAX, STREAMS + 1)
                    if not message:
                        return None
                else:
                    self._reap(descriptor)
                    continue
                if (words := self._fork(json.loads(message), received)) is not None:
                    return words

    def _reap(self, descriptor: int) -> None:
        pid, status = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):
            os.write(status, b"%d" % code)
        os.close(status)

    def _fork(self, request: dict[str, Any], received: list[int]) -> list[str] | None:
        words: list[str] = request["words"]
        if words[:1] == ["up"]:
            _load(SERVER_MODULES)
            gc.freeze()
        pid = os.fork()
        if pid == 0:
            for number, stream in enumerate(received[:STREAMS]):
                os.dup2(stream, number)
            others = [status for _, status in self._children.values()]
            for descriptor in (*received, *self._children, *others):
                os.close(descriptor)
            os.chdir(request["directory"])
            os.environ.clear()
            os.environ.update(request["environment"])
            return words
        *streams, status = received
        for stream in streams:
            os.close(stream)
        os.write(status, b"%d" % pid)
        descriptor = os.pidfd_open(pid)
        self._children[descriptor] = pid, status
        self._poll.register(descriptor, select.POLLIN)
        return None


def _leave(code: str | int | None) -> None:
    """End the process as the interpreter would, but leave its memory to the system.

    Its objects were made before the fork: freeing each would copy its page first, which takes longer
    than most verbs. Returns where the code is a text, which the interpreter prints.
    """
    if isinstance(code, str):
        return
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as it does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


def main() -> None:
    """Serve on the sockets whose descriptors are the arguments."""
    gc_tuning.tune()  # as the program does before it loads anything
    _load_verbs()
    gc.freeze()
    asked, door = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    path = door.getsockname()
    with asked, door:
        words = _Forks(asked, door).serve()
    if words is not None:
        from grange.app.main import main as run_program

        if words[:1] == ["up"]:
            from grange.app import daemon

            vars(daemon)["_start"] = partial(_start_detached, path)
        sys.argv = ["grange", *words]
        try:
            run_program()
        except SystemExit as end:
            _leave(end.code)
            raise


if __name__ == "__main__":
    main()
