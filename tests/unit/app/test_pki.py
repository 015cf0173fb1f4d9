"""Keys: private on disk, stable across restarts, renewed when they must be."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from grange.app import certificates, key_files, pki

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["localhost", "127.0.0.1", "::1"]


def test_keys_are_private_and_stable(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path / "pki", names=NAMES, now=NOW)
    second = certificates.ensure(tmp_path / "pki", names=NAMES, now=NOW + timedelta(days=1))
    assert first == second
    assert len(first.token) >= 40
    for path in (tmp_path / "pki").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "pki").stat().st_mode & 0o077 == 0


def test_server_certificate_is_signed_and_names_every_address(
    tmp_path: Path,
) -> None:
    keys = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    authority = x509.load_pem_x509_certificate(keys.ca_pem)
    server = x509.load_pem_x509_certificate(keys.server_certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(item) for item in names.get_values_for_type(x509.IPAddress)] == NAMES[1:]


def test_server_certificate_is_renewed_and_authority_stays(
    tmp_path: Path,
) -> None:
    first = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    before = first.server_certificate.read_bytes()
    later = certificates.ensure(tmp_path, names=NAMES, now=NOW + timedelta(days=340))
    assert later.server_certificate.read_bytes() != before
    assert later.ca_pem == first.ca_pem
    assert later.token == first.token


def test_a_new_name_makes_a_new_server_certificate(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    before = first.server_certificate.read_bytes()
    certificates.ensure(tmp_path, names=[*NAMES, "grange.example"], now=NOW)
    assert first.server_certificate.read_bytes() != before


def test_server_context_refuses_old_tls(tmp_path: Path) -> None:
    context = certificates.ensure(tmp_path, names=NAMES, now=NOW).server_context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ca.key", b""),
        ("ca.key", b"no key\n"),
        ("ca.crt", b""),
        ("ca.crt", b"\xff\xfe"),
        ("token", b"\n"),
        ("token", b"\xff\xfe"),
    ],
)
def test_damaged_keys_are_named_with_the_remedy(tmp_path: Path, name: str, content: bytes) -> None:
    certificates.ensure(tmp_path, names=NAMES, now=NOW)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(key_files.KeysUnusable, match=rf"{name}.*restore it"):
        certificates.ensure(tmp_path, names=NAMES, now=NOW)
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
def test_a_damaged_server_certificate_is_recreated(tmp_path: Path, name: str) -> None:
    first = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    (tmp_path / name).write_bytes(b"no key")
    again = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    assert again == first
    again.server_context()


def test_a_server_certificate_of_another_authority_is_recreated(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    (tmp_path / "ca.key").unlink()
    again = certificates.ensure(tmp_path, names=NAMES, now=NOW)
    assert again.ca_pem != first.ca_pem
    server = x509.load_pem_x509_certificate(again.server_certificate.read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(again.ca_pem))


async def test_keys_from_a_child_are_those_of_this_process(tmp_path: Path) -> None:
    child = pki.KeyProcess.start(tmp_path, NAMES)
    made = await child.keys(tmp_path, NAMES, NOW)
    child.end()
    assert made == await pki.in_process(tmp_path, NAMES, datetime.now(UTC))


async def test_what_a_child_finds_damaged_is_reported_here(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, names=NAMES, now=NOW)
    (tmp_path / "ca.key").write_bytes(b"not a key")
    child = pki.KeyProcess.start(tmp_path, NAMES)
    with pytest.raises(key_files.KeysUnusable, match=r"ca\.key.*restore it"):
        await child.keys(tmp_path, NAMES, NOW)
    child.end()


async def test_what_a_child_that_was_let_go_left_does_no_harm(tmp_path: Path) -> None:
    child = pki.KeyProcess.start(tmp_path, NAMES)
    child.end()
    child.end()
    keys = await pki.in_process(tmp_path, NAMES, NOW)
    assert keys.server_context().minimum_version is ssl.TLSVersion.TLSv1_2
