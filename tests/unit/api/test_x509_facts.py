"""The outline of a certificate, compared with what a library for certificates reads."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, strategies as st

from grange.api import x509_facts
from grange.api.x509_facts import CertificateUnreadable
from grange.app import certificates


@pytest.mark.parametrize("year", [2026, 2045])  # the second ends after 2050: another form of time
def test_facts_are_those_of_the_library(tmp_path: Path, year: int) -> None:
    now = datetime(year, 1, 2, 3, 4, 5, tzinfo=UTC)
    pem = certificates.ensure(tmp_path, names=["localhost"], now=now).ca_pem
    found, known = x509_facts.read(pem), x509.load_pem_x509_certificate(pem)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    key = known.public_key().public_bytes(serialization.Encoding.DER, form)
    assert found.pin == f"sha256:{hashlib.sha256(key).hexdigest()}"
    assert x509_facts.is_pin(found.pin)
    assert found.common_name == "grange-ca"
    assert found.not_before == known.not_valid_before_utc
    assert found.not_after == known.not_valid_after_utc == now + timedelta(days=3650)


@given(st.binary(max_size=300))
def test_garbage_is_unreadable(garbage: bytes) -> None:
    body = b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----"
    for text in (garbage, body % base64.b64encode(garbage)):
        with pytest.raises(CertificateUnreadable):
            x509_facts.read(text)


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:" + "0" * 63, "sha1:" + "0" * 64])
def test_other_texts_are_no_pins(text: str) -> None:
    assert not x509_facts.is_pin(text)
