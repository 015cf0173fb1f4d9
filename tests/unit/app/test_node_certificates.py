"""Keys, requests and signatures of nodes: what is read from a request, and what is signed for it."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, strategies as st

from grange.api.certificate_requests import CertificateTemplate, InvalidRequest, RequestFacts
from grange.app import certificates, node_certificates
from grange.app.certificate_process import CertificateProcess, MakeRequest
from grange.app.pki import KeysUnusable
from grange.base.offload import Inline

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = CertificateTemplate("system:node:a", "system:nodes", (), True, timedelta(days=1))
SERVING = CertificateTemplate("system:node:a", "system:nodes", ("a.b",), False, timedelta(days=1))


def test_request_says_what_was_asked_for() -> None:
    made = node_certificates.make(MakeRequest("system:node:a", "system:nodes", ("a.b",)))
    facts = node_certificates.read(made.request)
    assert facts == RequestFacts("system:node:a", ("system:nodes",), ("a.b",))


def test_signed_certificate_has_the_template_and_the_key(tmp_path: Path) -> None:
    keys = certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    made = node_certificates.make(MakeRequest("admin", "system:masters", ("localhost",)))
    for template in (CLIENT, SERVING):
        pem = node_certificates.sign(tmp_path, made.request, template, NOW)
        found = x509.load_pem_x509_certificate(pem)
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(keys.ca_pem))
        assert found.subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        wanted = ExtendedKeyUsageOID.CLIENT_AUTH if template.is_client else None
        assert list(usage) == [wanted or ExtendedKeyUsageOID.SERVER_AUTH]
        assert found.not_valid_after_utc == NOW + timedelta(days=1)
        (tmp_path / "both").write_bytes(pem + made.key)
        ssl.create_default_context().load_cert_chain(tmp_path / "both")


def test_certificate_does_not_outlive_the_authority(tmp_path: Path) -> None:
    keys = certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    end = x509.load_pem_x509_certificate(keys.ca_pem).not_valid_after_utc
    made = node_certificates.make(MakeRequest("a", "b"))
    pem = node_certificates.sign(tmp_path, made.request, CLIENT, end - timedelta(hours=1))
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc == end


def foreign(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *names: x509.GeneralName) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_other_alternative_names_are_seen() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    assert node_certificates.read(foreign(key, x509.RFC822Name("a@b"))).has_more
    assert not node_certificates.read(foreign(key)).has_more


def test_keys_of_other_kinds_are_not_signed(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    request = foreign(rsa.generate_private_key(65537, 2048))
    with pytest.raises(InvalidRequest, match="elliptic"):
        node_certificates.sign(tmp_path, request, CLIENT, NOW)


def point(request: x509.CertificateSigningRequest) -> bytes:
    encoding = serialization.Encoding.DER
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return request.public_key().public_bytes(encoding, form)


def test_request_that_is_not_signed_with_its_key_is_refused() -> None:
    made = node_certificates.make(MakeRequest("a", "b"))
    other = node_certificates.make(MakeRequest("a", "b"))
    first = x509.load_pem_x509_csr(made.request).public_bytes(serialization.Encoding.DER)
    second = x509.load_pem_x509_csr(other.request)
    mixed = first.replace(point(x509.load_pem_x509_csr(made.request)), point(second))
    pem = ssl.DER_cert_to_PEM_cert(mixed).replace("CERTIFICATE", "CERTIFICATE REQUEST")
    with pytest.raises(InvalidRequest, match="not signed with its key"):
        node_certificates.read(pem.encode())


@given(st.binary(max_size=200))
def test_garbage_is_an_invalid_request(garbage: bytes) -> None:
    for body in (garbage, b"-----BEGIN CERTIFICATE REQUEST-----\n" + garbage):
        with pytest.raises(InvalidRequest):
            node_certificates.read(body)


async def test_process_makes_reads_and_signs(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    process = CertificateProcess(Inline(), tmp_path)
    made = await process.make(MakeRequest("system:node:a", "system:nodes"))
    assert (await process.read(made.request)).common_name == "system:node:a"
    signed = await process.sign(made.request, CLIENT, NOW)
    assert signed.startswith(b"-----BEGIN CERTIFICATE-----")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await process.read(b"garbage")
    with pytest.raises(KeysUnusable, match=r"ca\.crt is damaged"):
        await CertificateProcess(Inline(), tmp_path / "none").sign(made.request, CLIENT, NOW)
