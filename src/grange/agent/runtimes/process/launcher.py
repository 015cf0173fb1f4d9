"""Starts the launcher process and asks it for shims. See ``shim`` for what those are."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.runtimes.process import shim

# Isolated, so that nothing of the environment or of the directory that it runs in is imported; our
# own packages come last on the path and hold nothing but what the shim imports.
_SCRIPT = (
    f"import sys; sys.path.append({str(Path(shim.__file__).parents[4])!r}); "
    f"from {shim.__name__} import main; main()"
)
_END_LIMIT_S = 2.0


class Launcher:
    """The launcher process, started when first needed and again should it die.

    Args:
        lock_fd: held by the launcher, and by every shim until its state is on disk.
        cwd: where the launcher sits; its shims leave it.
    """

    def __init__(self, lock_fd: int, cwd: Path) -> None:
        self._lock_fd = lock_fd
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = (
            threading.Lock()
        )  # disk threads start seccomp agents while the loop starts shims

    def request(
        self,
        operation: str,
        directory: str,
        spec: dict[str, object],
        descriptors: Sequence[int] = (),
    ) -> socket.socket:
        """Ask for a shim; the answer is the connection to it, which closes if there is none.

        The specification travels in anonymous memory: the environment of a container, secrets
        included, never touches the disk.

        Args:
            operation: ``start`` a container, ``run`` a command, or ``answer binds`` of containers of images.
            directory: of the attempt, for ``start``.
            spec: what to run.
            descriptors: the program's streams, for ``run``; they stay the caller's.

        Raises:
            RuntimeFailedError: no launcher can be started.
        """
        message = json.dumps({"op": operation, "directory": directory}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = -1
        try:
            memory = os.memfd_create("grange-spec")
            with os.fdopen(os.dup(memory), "wb") as target:
                target.write(json.dumps(spec).encode())
            self._send(message, [memory, theirs.fileno(), *descriptors])
        except OSError as error:
            ours.close()
            raise RuntimeFailedError(f"cannot start a process: {error.strerror}") from error
        finally:
            theirs.close()
            if memory >= 0:
                os.close(memory)
        ours.settimeout(0.0)
        return ours

    def _send(self, message: bytes, fds: list[int]) -> None:
        with self._lock:
            try:
                socket.send_fds(self._running(), [message], fds)
            except (BrokenPipeError, ConnectionResetError):
                self._end()  # it died; one new one is worth a try
                socket.send_fds(self._running(), [message], fds)

    def _running(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control.settimeout(0.0)
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        "-E",
                        "-c",
                        _SCRIPT,
                        str(theirs.fileno()),
                        str(self._lock_fd),
                    ],
                    pass_fds=(theirs.fileno(), self._lock_fd),
                    cwd=self._cwd,
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                self._control.close()
                self._control = None
                raise
            finally:
                theirs.close()
        return self._control

    def close(self) -> None:
        """End the launcher; the shims that it forked go on."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:  # stopped: it never notices that its input is closed
                self._process.kill()
                self._process.wait()
            self._process = None
