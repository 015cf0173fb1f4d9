"""Imports that must not read the authorities of the system."""

import os
import ssl
from pathlib import Path

import pytest

from grange.app import certificates, system_authorities
from grange.base.clock import Clock


def _known() -> int:
    return len(ssl.create_default_context().get_ca_certs())


async def test_authorities_of_the_system_are_not_read(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.ensure(tmp_path, names=["localhost"], now=clock.now())
    monkeypatch.setenv("SSL_CERT_FILE", f"{tmp_path / 'ca.crt'}")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    assert _known() == 1
    with pytest.raises(ImportError), system_authorities.skipped():
        assert _known() == 0
        raise ImportError
    assert _known() == 1
    assert "SSL_CERT_DIR" not in os.environ
