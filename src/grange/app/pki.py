"""The keys of one control plane: its own CA, a server certificate and an admin token.

Everything is made on first use, by ``certificates``, and kept in the data directory (directory 0700,
files 0600). The server certificate is renewed when it is near its end or lacks a name that is now
needed; the CA and the token stay, so a kubeconfig that was handed out keeps working.
"""

import os
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from grange.app.settings import Settings
from grange.base.errors import GrangeError
from grange.base.offload import Threads

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def wanted(settings: Settings) -> tuple[Path, tuple[str, ...]]:
    """Where a control plane keeps its keys, and the names by which clients will know it."""
    own = () if settings.wildcard else (settings.host,)
    return settings.data_dir / "pki", (*LOCAL_NAMES, *own, *settings.tls_names)


class KeysUnusable(GrangeError):
    """A file that clients rely on is damaged; the message names it and what to do."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Where the keys are, and the token.

    Attributes:
        ca_pem: the CA certificate, for clients.
        token: the admin's bearer token.
        server_certificate: path of the server's certificate chain.
        server_key: path of the server's private key.
        client_certificate: path of the certificate with which the server calls agents.
        client_key: path of its private key.
    """

    ca_pem: bytes
    token: str
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path

    def server_context(self) -> ssl.SSLContext:
        """A TLS context for the listener: TLS 1.2 or newer; asks for client certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.ca_pem.decode("ascii"))
        self.load_into(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """TLS for calls of agents: trusts the authority and shows the certificate that is on disk."""
        context = ssl.create_default_context(cadata=self.ca_pem.decode("ascii"))
        context.load_cert_chain(self.client_certificate, self.client_key)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have new connections of a context get the certificate that is on disk now."""
        context.load_cert_chain(self.server_certificate, self.server_key)


MakeKeys = Callable[[Path, Sequence[str], datetime], Awaitable[Keys]]
"""Makes what is missing in a directory, for these names, at this time."""


async def in_process(directory: Path, names: Sequence[str], now: datetime) -> Keys:
    """Make the keys here.

    Raises:
        KeysUnusable: the authority or the token is there and cannot be read as such.
    """
    from grange.app import certificates  # large, and needed once

    return certificates.ensure(directory, names=names, now=now)


async def in_child(directory: Path, names: Sequence[str], now: datetime) -> Keys:
    """Make the keys in a separate process, in parallel.

    Raises:
        KeysUnusable: they cannot be made or read.
    """
    child = KeyProcess.start(directory, names)
    try:
        return await child.keys(directory, names, now)
    finally:
        child.end()


def certificates_command(directory: Path, names: Sequence[str]) -> list[str]:
    """The words that make keys; modules never come from the current directory.

    Otherwise a file secrets.py there would choose the admin's token.
    """
    return [sys.executable, "-P", "-m", "grange.app.certificates", str(directory), *names]


class KeyProcess:
    """Creates keys in a separate process, while the start goes on.

    That process takes the library for certificates with it when it ends. Made in the server, keys
    would leave 10.6 MB behind: 84 MB at rest instead of 74, and the goal is 80.

    Args:
        process: as ``start`` has started it.
        directory: where keys are kept.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._waiting = Threads("keys")

    @classmethod
    def start(cls, directory: Path, names: Sequence[str]) -> Self:
        """Begin.

        Args:
            directory: where keys are kept.
            names: DNS names and addresses that clients will use.
        """
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            certificates_command(directory, names),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        return cls(process, directory)

    async def keys(self, directory: Path, names: Sequence[str], now: datetime) -> Keys:
        """The keys, once they are made; for the names and at the time of ``start``.

        Raises:
            KeysUnusable: they cannot be made or read.
        """
        output = await self._waiting.run(self._finished)
        if self._process.returncode:
            lines = output.decode(errors="replace").strip().splitlines()
            raise KeysUnusable(lines[-1] if lines else "keys could not be made")
        return read(self._directory)

    def end(self) -> None:
        """Let go of the process, whether anybody wanted its keys or not."""
        with self._process:
            self._process.kill()
        self._waiting.close()

    def _finished(self) -> bytes:
        """Its errors, once it has ended."""
        output = self._process.stderr.read() if self._process.stderr else b""
        self._process.wait()
        return output


def read(directory: Path) -> Keys:
    """The keys of a directory.

    Raises:
        KeysUnusable: the token cannot be read.
    """
    return Keys(
        ca_pem=(directory / "ca.crt").read_bytes(),
        token=_token(directory / "token"),
        server_certificate=directory / "server.crt",
        server_key=directory / "server.key",
        client_certificate=directory / "client.crt",
        client_key=directory / "client.key",
    )


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except UnicodeDecodeError as error:
        raise damaged(path) from error
    if not token:
        raise damaged(path)
    return token


def damaged(path: Path) -> KeysUnusable:
    """The error of a file that cannot be read as what it should be."""
    return KeysUnusable(
        f"{path} is damaged: restore it, or remove {path.parent} to have new keys, "
        "after which kubeconfigs that were handed out no longer work"
    )


def secret_in(path: Path) -> str:
    """The secret in a file, which is made when it is missing."""
    try:
        found = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = os.urandom(32).hex()
        write_private(path, found.encode())
    return found


def random_text(alphabet: str, length: int) -> str:
    """A secret of so many characters, each with the same chance."""
    most = 256 - 256 % len(alphabet)
    found = ""
    while len(found) < length:
        found += "".join(
            alphabet[item % len(alphabet)] for item in os.urandom(length) if item < most
        )
    return found[:length]


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner alone."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
