"""Certificates of nodes: keys and requests on their side, signatures on that of the authority.

Run as a program, it carries out commands of ``certificate_commands``: a line of standard input each,
and a line of standard output for its result. ``certificate_process`` starts it; the library behind it
is large.
"""

import sys
from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from grange.api.certificate_requests import CertificateTemplate, InvalidRequest, RequestFacts
from grange.app import certificates
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

_PEM = serialization.Encoding.PEM
_SUBJECT = {NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME}


def make(command: MakeRequest) -> MadeRequest:
    """A new key, and the request for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        certificates.subject(command.common_name, command.organization)
    )
    if command.dns_names:
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in command.dns_names])
        builder = builder.add_extension(names, critical=False)
    request = builder.sign(key, hashes.SHA256())
    return MadeRequest(certificates.pem(key), request.public_bytes(_PEM))


def read(request: bytes) -> RequestFacts:
    """What a PEM request asks for.

    Raises:
        InvalidRequest: it is none, or its signature is not that of its key.
    """
    found = _load(request)
    subject = list(found.subject)
    names = [item.value for item in subject if item.oid == NameOID.COMMON_NAME]
    groups = [item.value for item in subject if item.oid == NameOID.ORGANIZATION_NAME]
    has_more = len(names) != 1 or any(item.oid not in _SUBJECT for item in subject)
    dns_names: list[str] = []
    try:
        extensions = list(found.extensions)
    except (ValueError, x509.DuplicateExtension, UnsupportedAlgorithm) as error:
        raise InvalidRequest(f"the extensions of the request cannot be read: {error}") from error
    for extension in extensions:
        value = extension.value
        if not isinstance(value, x509.SubjectAlternativeName):
            has_more = True
            continue
        for name in value:
            if isinstance(name, x509.DNSName):
                dns_names.append(name.value)
            else:
                has_more = True
    return RequestFacts(
        common_name=_text(names[0]) if names else "",
        organizations=tuple(_text(group) for group in groups),
        dns_names=tuple(dns_names),
        has_more=has_more,
    )


def sign(directory: Path, request: bytes, template: CertificateTemplate, now: datetime) -> bytes:
    """A PEM certificate of the template for the key of a request; nothing else of it is signed.

    Raises:
        InvalidRequest: the request cannot be read.
        KeysUnusable: the authority cannot be read.
    """
    key = _load(request).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidRequest("the key must be one of elliptic curves")
    name = certificates.subject(template.common_name, template.organization)
    signed = certificates.sign_leaf(
        directory,
        name,
        key,
        usage=ExtendedKeyUsageOID.CLIENT_AUTH
        if template.is_client
        else ExtendedKeyUsageOID.SERVER_AUTH,
        names=[x509.DNSName(item) for item in template.dns_names],
        now=now,
        life=template.life,
    )
    return signed.public_bytes(_PEM)


def _load(request: bytes) -> x509.CertificateSigningRequest:
    try:
        found = x509.load_pem_x509_csr(request)
        if found.is_signature_valid:
            return found
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise InvalidRequest(f"the request cannot be read: {error}") from error
    raise InvalidRequest("the request is not signed with its key")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def carry_out(command: CertificateCommand) -> object:
    """The result of a command.

    Raises:
        InvalidRequest, KeysUnusable: as the functions above.
    """
    match command:
        case ReadRequest(request):
            return read(request)
        case SignRequest(directory, request, template, now):
            return SignedCertificate(sign(Path(directory), request, template, now))
        case MakeRequest():
            return make(command)


def result_of(line: bytes) -> CertificateResult:
    """The result of a command, or why there is none."""
    try:
        command = msgspec.json.decode(line, type=CertificateCommand)
        return CertificateResult(msgspec.Raw(msgspec.json.encode(carry_out(command))))
    except InvalidRequest as error:
        return CertificateResult(error=str(error), is_invalid=True)
    except (KeysUnusable, OSError, msgspec.MsgspecError) as error:
        return CertificateResult(error=str(error))


def main() -> None:
    """Carry out the commands on standard input, until its end."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(result_of(line)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
