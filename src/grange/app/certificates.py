"""Making keys: an authority, a server certificate that it signs, and a token.

Apart from ``pki`` because the library behind it is large: a server that serves for weeks needs it
for a tenth of a second. Run as a program (``python -m grange.app.certificates DIRECTORY NAME…``) it makes
what is missing and exits; errors go to standard error, with exit code 1.
"""

import ipaddress
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from grange.api.node_identity import API_SERVER, API_SERVERS
from grange.app.key_files import Keys, KeysUnusable, damaged, read, write_private

_CA_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
_CLOCK_SKEW = timedelta(minutes=5)  # peers whose clocks are a little behind still accept us


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
    _client(directory, ca_certificate, now)
    token_path = directory / "token"
    if not token_path.exists():
        write_private(token_path, secrets.token_urlsafe(32).encode())
    return read(directory)


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def subject(common_name: str, organization: str = "") -> x509.Name:
    """A name of one or two parts."""
    name = x509.NameAttribute(NameOID.COMMON_NAME, common_name)
    if not organization:
        return x509.Name([name])
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization), name])


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
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
        _builder(subject("grange-ca"), subject("grange-ca"), key.public_key(), now, _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, pem(key))
    write_private(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise damaged(path) from error


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise damaged(path) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise damaged(path)
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
        return False  # no program relies on these two files: they can be created again
    if certificate.public_key() != key.public_key():
        return False
    if certificate.not_valid_after_utc - now < _RENEW_BEFORE:
        return False
    if not names:
        return True
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
    certificate = _leaf(
        ca_certificate,
        ca_key,
        subject("grange-apiserver"),
        key.public_key(),
        usage=ExtendedKeyUsageOID.SERVER_AUTH,
        names=wanted,
        now=now,
        life=_SERVER_LIFE,
    )
    write_private(directory / "server.key", pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _client(directory: Path, ca_certificate: x509.Certificate, now: datetime) -> None:
    """The certificate with which the API server calls the agents of nodes."""
    path = directory / "client.crt"
    if _still_good(path, ca_certificate, [], now):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = sign_leaf(
        directory,
        subject(API_SERVER, API_SERVERS),
        key.public_key(),
        usage=ExtendedKeyUsageOID.CLIENT_AUTH,
        names=[],
        now=now,
        life=_SERVER_LIFE,
    )
    write_private(directory / "client.key", pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def sign_leaf(
    directory: Path,
    name: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    usage: x509.ObjectIdentifier,
    names: Sequence[x509.GeneralName],
    now: datetime,
    life: timedelta,
) -> x509.Certificate:
    """A certificate that the authority of a directory signs; it ends with the authority at the latest.

    Raises:
        KeysUnusable: there is no authority, or it cannot be read.
    """
    ca_path, key_path = directory / "ca.crt", directory / "ca.key"
    if not ca_path.exists() or not key_path.exists():
        raise damaged(ca_path)
    ca_certificate, ca_key = _certificate(ca_path), _key(key_path)
    return _leaf(ca_certificate, ca_key, name, key, usage=usage, names=names, now=now, life=life)


def _leaf(  # noqa: PLR0913  the parts of a certificate
    ca_certificate: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    name: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    usage: x509.ObjectIdentifier,
    names: Sequence[x509.GeneralName],
    now: datetime,
    life: timedelta,
) -> x509.Certificate:
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    life = min(life, ca_certificate.not_valid_after_utc - now)
    builder = _builder(name, ca_certificate.subject, key, now, life)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def main(words: Sequence[str]) -> int:
    """Make the keys of a directory; the exit code."""
    try:
        ensure(Path(words[0]), names=words[1:], now=datetime.now(UTC))
    except (KeysUnusable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
