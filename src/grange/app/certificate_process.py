"""Reading, signing and requesting certificates in a process that ends afterwards.

The library for certificates would stay in the memory of a server that needs it once a month; see
``pki.KeyProcess``. To load it costs 0.2 s of processor time, so one process carries out all commands
of a machine that joins, or of many that join together, and ends when it is idle.
"""

import asyncio
import select
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from grange.api.certificate_requests import CertificateTemplate, InvalidRequest, RequestFacts
from grange.app.certificate_commands import (
    CertificateCommand,
    CertificateResult,
    MadeRequest,
    MakeRequest,
    ReadRequest,
    SignedCertificate,
    SignRequest,
)
from grange.app.key_files import KeysUnusable
from grange.base.offload import Offload

_LIMIT_S = 30.0
_IDLE_S = 10.0
_PIECE_BYTES = 64 * 1024

T = TypeVar("T")


class CertificateProcess:
    """Carries out one command after the other in a child process, which is started when it is needed.

    Args:
        directory: of the authority; without one nothing is signed.
        offload: where results are waited for.
    """

    def __init__(self, offload: Offload, directory: Path | None = None) -> None:
        self._offload = offload
        self._directory = directory
        self._turn = asyncio.Lock()
        self._child: _Child | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def read(self, request: bytes) -> RequestFacts:
        """What a PEM request asks for.

        Raises:
            InvalidRequest: it is none, or its signature is not that of its key.
            KeysUnusable: the process failed.
        """
        return await self._run(ReadRequest(request), RequestFacts)

    async def sign(self, request: bytes, template: CertificateTemplate, now: datetime) -> bytes:
        """A PEM certificate of the template for the key of a request.

        Raises:
            InvalidRequest: the request cannot be read.
            KeysUnusable: the authority cannot be read, or the process failed.
        """
        if self._directory is None:
            raise KeysUnusable("there is no authority to sign with")
        command = SignRequest(str(self._directory), request, template, now)
        return (await self._run(command, SignedCertificate)).certificate

    async def make(self, command: MakeRequest) -> MadeRequest:
        """A new key, and the request for it.

        Raises:
            KeysUnusable: the process failed.
        """
        return await self._run(command, MadeRequest)

    def start(self) -> None:
        """Start the process before the first command, so that it loads meanwhile.

        Raises:
            KeysUnusable: it cannot be started.
        """
        if self._child is None:
            self._child = _Child()
        self._end_when_idle()

    def close(self) -> None:
        """End the process if there is one; a command that is carried out fails. Idempotent."""
        if self._idle is not None:
            self._idle.cancel()
        if self._child is not None:
            self._child.abandon()
        self._idle = self._child = None

    def _end_when_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._turn.locked():
            self._end_when_idle()
        else:
            self.close()

    async def _run(self, command: CertificateCommand, result: type[T]) -> T:
        line = msgspec.json.encode(command) + b"\n"
        async with self._turn:
            self.start()
            child = self._child
            if child is None:
                raise RuntimeError("a started process is there")
            try:
                body = await self._offload.run(lambda: child.carry_out(line))
            except BaseException:
                # A result that is not waited for would be taken for that of the next command.
                self.close()
                raise
            self._end_when_idle()
        found = msgspec.json.decode(body, type=CertificateResult)
        if found.is_invalid:
            raise InvalidRequest(found.error)
        if found.error:
            raise KeysUnusable(f"certificates cannot be made: {found.error}")
        return msgspec.json.decode(found.value, type=result)


class _Child:
    """A process of ``node_certificates``.

    Raises:
        KeysUnusable: it cannot be started.
    """

    def __init__(self) -> None:
        self._is_busy = self._is_unwanted = False
        try:
            # Modules never come from the current directory.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "grange.app.node_certificates"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            raise KeysUnusable(f"certificates cannot be made: {error}") from error

    def carry_out(self, line: bytes) -> bytes:
        """The result of a command; blocks.

        Raises:
            KeysUnusable: the process ended or does not answer; it is gone then.
        """
        self._is_busy = True
        try:
            return self._answer(line)
        except (OSError, EOFError, ValueError) as error:  # ValueError: it was ended before
            self._is_unwanted = True
            raise KeysUnusable(f"certificates cannot be made: {self._why(error)}") from error
        finally:
            self._is_busy = False
            if self._is_unwanted:
                self._end()

    def abandon(self) -> None:
        """End the process: now, or in the thread that waits for it."""
        self._is_unwanted = True
        self._process.kill()
        if not self._is_busy:
            self._end()

    def _answer(self, line: bytes) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process has pipes")
        while line:
            line = line[stdin.write(line) :]
        readable = select.poll()
        readable.register(stdout, select.POLLIN)
        found = b""
        while not found.endswith(b"\n"):
            if not readable.poll(1000 * _LIMIT_S):
                raise TimeoutError(f"no answer for {_LIMIT_S:.0f} s")
            piece = stdout.read(_PIECE_BYTES)
            if not piece:
                raise EOFError
            found += piece
        return found

    def _why(self, error: Exception) -> str:
        """The last line of its errors, else what failed here."""
        self._process.kill()
        stderr = self._process.stderr
        lines = stderr.read().decode(errors="replace").split("\n") if stderr else []
        found = [line.strip() for line in lines if line.strip()]
        return found[-1] if found else str(error) or f"exit code {self._process.wait()}"

    def _end(self) -> None:
        with self._process:  # closes the pipes and waits
            self._process.kill()
