"""Run verbs in processes that are forked from one that has loaded them.

Loading Python and the modules of a verb takes most of the processor time of a short verb, and tests
run hundreds of them. Each verb still has its own process, arguments, streams and environment. Tests
of how the program starts, of signals and of terminals start it with ``GRANGE`` instead.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUEST_MAX = 1 << 17
REPLY_MAX = 64
STREAMS = 3


class WarmCli:
    """The process that forks, and the requests to it."""

    def __init__(self) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.warm_cli", str(asked.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[asked.fileno()],
            )

    def run(
        self, *words: str, stdin: str = "", timeout_s: float = 120.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``grange`` with these words to its end, like ``subprocess.run``."""
        request = {"words": words, "directory": os.getcwd(), "environment": dict(os.environ)}
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
        ):
            given.write(stdin)
            given.seek(0)
            streams = [given.fileno(), output.fileno(), errors.fileno()]
            self._asking.settimeout(timeout_s)
            socket.send_fds(self._asking, [json.dumps(request).encode()], streams)
            pid = self._reply()
            try:
                code = self._reply()
            except BaseException:  # also what a time limit of the test raises
                os.kill(pid, signal.SIGKILL)
                self._reply()
                raise
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess([*words], code, output.read(), errors.read())

    def _reply(self) -> int:
        return int(self._asking.recv(REPLY_MAX))

    def close(self) -> None:
        """End the process."""
        self._asking.close()
        self._process.wait()


def _load() -> None:
    """Load what verbs load when they run."""
    import grange.cli.verbs as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    for name in ("grange.app.main", "grange.client.transports.http_transport"):
        importlib.import_module(name)


def _serve(asked: socket.socket) -> list[str] | None:
    """Fork for each request; returns the words of a verb in the child."""
    while True:
        message, streams, _, _ = socket.recv_fds(asked, REQUEST_MAX, STREAMS)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            request = json.loads(message)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(request["directory"])
            os.environ.clear()
            os.environ.update(request["environment"])
            words: list[str] = request["words"]
            return words
        for stream in streams:
            os.close(stream)
        asked.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        asked.send(str(os.waitstatus_to_exitcode(status)).encode())


def main() -> None:
    """Serve on the socket whose descriptor is the argument."""
    _load()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        words = _serve(asked)
    if words is not None:
        from grange.app.main import main as run_verb

        sys.argv = ["grange", *words]
        run_verb()


if __name__ == "__main__":
    main()
