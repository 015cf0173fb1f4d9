"""The keys of one control plane: its own CA, a server certificate and an admin token.

Everything is made on first use and kept in the data directory (directory 0700, files 0600). The
server certificate is made anew when it is near its end or lacks a name that is now needed; the CA
and the token stay, so a kubeconfig that was handed out keeps working.
"""

import ipaddress
import os
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from grange.base.errors import GrangeError

_CA_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
_CLOCK_SKEW = timedelta(minutes=5)  # peers whose clocks are a little behind still accept us


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
    """

    ca_pem: bytes
    token: str
    server_certificate: Path
    server_key: Path

    def server_context(self) -> ssl.SSLContext:
        """A TLS context for the listener: TLS 1.2 or newer."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.server_certificate, self.server_key)
        return context


def ensure(directory: Path, *, names: Sequence[str], now: datetime) -> Keys:
    """Make what is missing and return the keys.

    Args:
        directory: where keys are kept; made with mode 0700.
        names: DNS names and addresses that clients will use.
        now: wall time, for validity.

    Raises:
        KeysUnusable: the authority or the token is there and cannot be read as such.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca_certificate, ca_key = _authority(directory, now)
    _server(directory, ca_certificate, ca_key, names, now)
    token_path = directory / "token"
    if not token_path.exists():
        write_private(token_path, secrets.token_urlsafe(32).encode())
    return Keys(
        ca_pem=ca_certificate.public_bytes(serialization.Encoding.PEM),
        token=_token(token_path),
        server_certificate=directory / "server.crt",
        server_key=directory / "server.key",
    )


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except UnicodeDecodeError as error:
        raise _damaged(path) from error
    if not token:
        raise _damaged(path)
    return token


def _damaged(path: Path) -> KeysUnusable:
    return KeysUnusable(
        f"{path} is damaged: restore it, or remove {path.parent} to have new keys, "
        "after which kubeconfigs that were handed out no longer work"
    )


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner alone."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(
    directory: Path, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate_path, key_path = directory / "ca.crt", directory / "ca.key"
    if certificate_path.exists() and key_path.exists():
        return _certificate(certificate_path), _key(key_path)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder("grange-ca", _named("grange-ca"), key.public_key(), now, _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _pem(key))
    write_private(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise _damaged(path) from error


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise _damaged(path) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _damaged(path)
    return key


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    result: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            result.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            result.append(x509.DNSName(name))
    return result


def _still_good(
    path: Path, authority: x509.Certificate, names: list[x509.GeneralName], now: datetime
) -> bool:
    key_path = path.with_suffix(".key")
    if not path.exists() or not key_path.exists():
        return False
    try:
        certificate, key = _certificate(path), _key(key_path)
        certificate.verify_directly_issued_by(authority)
    except (KeysUnusable, ValueError, InvalidSignature):
        return False  # nobody relies on these two files: they can be made anew
    if certificate.public_key() != key.public_key():
        return False
    if certificate.not_valid_after_utc - now < _RENEW_BEFORE:
        return False
    present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(name in list(present) for name in names)


def _server(
    directory: Path,
    ca_certificate: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    now: datetime,
) -> None:
    path = directory / "server.crt"
    wanted = _alternative_names(names)
    if _still_good(path, ca_certificate, wanted, now):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _builder("grange-apiserver", ca_certificate.subject, key.public_key(), now, _SERVER_LIFE)
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    write_private(directory / "server.key", _pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))
