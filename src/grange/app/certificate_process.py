"""Reading, signing and requesting certificates in a process that ends afterwards.

The library for certificates would stay in the memory of a server that needs it once a month; see
``pki.KeyProcess``. The commands are those of ``node_certificates``.
"""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from grange.api.certificate_requests import CertificateTemplate, InvalidRequest, RequestFacts
from grange.app.pki import KeysUnusable
from grange.base.offload import Offload

_LIMIT_S = 30.0
NOT_READABLE = 3
"""Exit code of the process for a request that is none."""

T = TypeVar("T")


class ReadRequest(msgspec.Struct, tag="read"):
    """Read a request."""

    request: bytes


class SignRequest(msgspec.Struct, tag="sign"):
    """Sign a request with the authority in a directory."""

    directory: str
    request: bytes
    template: CertificateTemplate
    now: datetime


class MakeRequest(msgspec.Struct, tag="make"):
    """Make a key, and a request for a certificate with this subject and these names."""

    common_name: str
    organization: str
    dns_names: tuple[str, ...] = ()


class MadeRequest(msgspec.Struct):
    """A private key and the request for it, both PEM."""

    key: bytes
    request: bytes


class SignedCertificate(msgspec.Struct):
    """A certificate, PEM."""

    certificate: bytes


CertificateCommand = ReadRequest | SignRequest | MakeRequest


class CertificateProcess:
    """Runs one process for each command.

    Args:
        directory: of the authority; without one nothing is signed.
        offload: where the processes are waited for.
    """

    def __init__(self, offload: Offload, directory: Path | None = None) -> None:
        self._offload = offload
        self._directory = directory

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

    async def _run(self, command: CertificateCommand, result: type[T]) -> T:
        body = await self._offload.run(lambda: _output(msgspec.json.encode(command)))
        return msgspec.json.decode(body, type=result)


def _output(command: bytes) -> bytes:
    try:
        # Modules never come from the current directory.
        done = subprocess.run(
            [sys.executable, "-P", "-m", "grange.app.node_certificates"],
            input=command,
            capture_output=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KeysUnusable(f"certificates cannot be made: {error}") from error
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"exit code {done.returncode}"
    if done.returncode == NOT_READABLE:
        raise InvalidRequest(why)
    raise KeysUnusable(f"certificates cannot be made: {why}")
