"""The files of the keys of one control plane, and how private files are written.

Apart from ``pki`` because processes that only make or sign certificates read and write them, and end
after a fraction of a second: nothing large is imported here.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from grange.base.errors import GrangeError


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
