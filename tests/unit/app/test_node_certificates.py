"""Keys, requests and signatures of nodes: what is read from a request, and what is signed for it."""

import asyncio
import contextlib
import signal
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, strategies as st

from grange.api.certificate_requests import CertificateTemplate, InvalidRequest, RequestFacts
from grange.app import certificates, node_certificates
from grange.app.certificate_commands import MakeRequest
from grange.app.certificate_process import CertificateProcess
from grange.app.key_files import KeysUnusable
from grange.base.clock import Clock
from grange.base.offload import Inline, Threads
from grange.base.tasks import Nursery

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = CertificateTemplate("system:node:a", "system:nodes", (), True, timedelta(days=1))
SERVING = CertificateTemplate("system:node:a", "system:nodes", ("a.b",), False, timedelta(days=1))


def test_request_names_what_was_asked_for() -> None:
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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that were started."""
    found: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return found


async def test_one_process_makes_reads_and_signs(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    with contextlib.closing(CertificateProcess(Inline(), tmp_path)) as process:
        made = await process.make(MakeRequest("system:node:a", "system:nodes"))
        assert (await process.read(made.request)).common_name == "system:node:a"
        signed = await process.sign(made.request, CLIENT, NOW)
        assert signed.startswith(b"-----BEGIN CERTIFICATE-----")
        with pytest.raises(InvalidRequest, match="cannot be read"):
            await process.read(b"garbage")
        (tmp_path / "ca.crt").unlink()
        with pytest.raises(KeysUnusable, match=r"ca\.crt is damaged"):
            await process.sign(made.request, CLIENT, NOW)
    assert [child.returncode for child in started] == [-signal.SIGKILL]


async def test_idle_process_ends_and_another_follows(
    clock: Clock, started: list[subprocess.Popen[bytes]]
) -> None:
    with contextlib.closing(CertificateProcess(Inline())) as process:
        process.start()
        process.start()
        assert len(started) == 1
        await clock.sleep(11.0)
        assert started[0].returncode == -signal.SIGKILL
        assert (await process.make(MakeRequest("a", "b"))).key
    assert len(started) == 2


async def test_process_that_was_killed_is_replaced(
    started: list[subprocess.Popen[bytes]],
) -> None:
    with contextlib.closing(CertificateProcess(Inline())) as process:
        process.start()
        started[0].kill()
        started[0].wait()
        with pytest.raises(KeysUnusable, match="certificates cannot be made"):
            await process.make(MakeRequest("a", "b"))
        assert (await process.make(MakeRequest("a", "b"))).key


async def test_cancelled_command_leaves_no_process(
    started: list[subprocess.Popen[bytes]],
) -> None:
    threads = Threads("test")
    with contextlib.closing(CertificateProcess(threads)) as process:
        async with Nursery("test") as nursery:
            nursery.start(process.make(MakeRequest("a", "b")), name="make")
            await asyncio.sleep(0)
            nursery.cancel()
    threads.close()
    assert [child.returncode for child in started] == [-signal.SIGKILL]
    assert all(pipe is not None and pipe.closed for pipe in (started[0].stdin, started[0].stdout))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Connect both in memory; the subject that the server sees."""
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(inbound, outbound, server_hostname="localhost"),
        server.wrap_bio(outbound, inbound, server_side=True),
    )
    waiting = list(ends)
    for _ in range(10):
        for end in tuple(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)
    found = ends[1].getpeercert()
    assert found is not None
    return str(dict(part[0] for part in found["subject"])["commonName"])  # type: ignore[misc]  # the stubs know no shape


def node_context(root: Path, trusted: bytes) -> ssl.SSLContext:
    """What an agent connects with: a certificate of one root, trust in another."""
    made = node_certificates.make(MakeRequest("system:node:a", "system:nodes"))
    (root / "node").write_bytes(
        node_certificates.sign(root, made.request, CLIENT, datetime.now(UTC)) + made.key
    )
    context = ssl.create_default_context(cadata=trusted.decode())
    context.load_cert_chain(root / "node")
    return context


def test_f77_the_root_persists_and_signs(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    again = certificates.ensure(tmp_path, names=["localhost"], now=NOW + timedelta(days=1))
    made = node_certificates.make(MakeRequest("system:node:a", "system:nodes"))
    pem = node_certificates.sign(tmp_path, made.request, CLIENT, NOW + timedelta(days=1))
    assert again.ca_pem == first.ca_pem
    signed = x509.load_pem_x509_certificate(pem)
    signed.verify_directly_issued_by(x509.load_pem_x509_certificate(first.ca_pem))


def test_f78_encoded_keys_and_certificates_decode_to_equals(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, names=["localhost"], now=NOW)
    made = node_certificates.make(MakeRequest("system:node:a", "system:nodes"))
    key = serialization.load_pem_private_key(made.key, password=None)
    pem = node_certificates.sign(tmp_path, made.request, CLIENT, NOW)
    found = x509.load_pem_x509_certificate(pem)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert certificates.pem(key) == made.key
    assert found.public_key() == key.public_key()
    assert found.public_bytes(serialization.Encoding.PEM) == pem


def test_f79_a_node_is_accepted_by_its_root_only(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ours = certificates.ensure(tmp_path / "ours", names=["localhost"], now=now)
    theirs = certificates.ensure(tmp_path / "theirs", names=["localhost"], now=now)
    server = ours.server_context()
    server.verify_mode = ssl.CERT_REQUIRED
    assert handshake(server, node_context(tmp_path / "ours", ours.ca_pem)) == "system:node:a"
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, node_context(tmp_path / "ours", theirs.ca_pem))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, node_context(tmp_path / "theirs", ours.ca_pem))
