"""What an agent does with the certificate that it finds."""

from datetime import timedelta
from pathlib import Path

import pytest

from grange.api.certificate_requests import CertificateTemplate
from grange.app import certificates, node_certificates
from grange.app.certificate_commands import MakeRequest
from grange.app.certificate_process import CertificateProcess
from grange.app.node_credentials import JoinFailed, JoinTarget, NodeCredentials
from grange.base.clock import Clock
from grange.base.offload import Inline

DAY_S = 86_400.0
TARGET = JoinTarget("https://127.0.0.1:1", "a")


@pytest.fixture
async def found(tmp_path: Path, clock: Clock) -> NodeCredentials:
    """Credentials with a certificate for a day."""
    certificates.ensure(tmp_path, names=["localhost"], now=clock.now())
    made = node_certificates.make(MakeRequest("system:node:a", "system:nodes"))
    template = CertificateTemplate("system:node:a", "system:nodes", (), True, timedelta(days=1))
    pem = node_certificates.sign(tmp_path, made.request, template, clock.now())
    credentials = NodeCredentials(tmp_path / "agent", CertificateProcess(Inline()), clock)
    credentials.file.parent.mkdir(parents=True)
    credentials.file.write_bytes(pem + made.key)
    return credentials


async def test_certificate_of_the_node_is_used(found: NodeCredentials) -> None:
    assert found.has_certificate("a")


async def test_certificate_of_another_node_is_not_used(found: NodeCredentials) -> None:
    with pytest.raises(
        JoinFailed, match=r"--node-name b: .* is the data directory of node a; give"
    ):
        found.has_certificate("b")


async def test_ended_certificate_needs_a_token(found: NodeCredentials, clock: Clock) -> None:
    await clock.sleep(2 * DAY_S)
    assert not found.has_certificate("a")
    with pytest.raises(JoinFailed, match=r"node a ended at .* grange token create --node a"):
        await found.join(TARGET)


async def test_clock_that_is_behind_is_named(tmp_path: Path, found: NodeCredentials) -> None:
    class Behind:
        def now(self) -> object:
            return found._clock.now() - timedelta(days=3)

    behind = NodeCredentials(tmp_path / "agent", CertificateProcess(Inline()), Behind())  # type: ignore[arg-type]  # only the time is read
    with pytest.raises(JoinFailed, match="set the clock of this machine"):
        behind.has_certificate("a")


async def test_without_a_certificate_a_token_is_needed(tmp_path: Path, clock: Clock) -> None:
    empty = NodeCredentials(tmp_path / "empty", CertificateProcess(Inline()), clock)
    assert not empty.has_certificate("a")
    with pytest.raises(JoinFailed, match="no certificate of the node in"):
        await empty.join(TARGET)


async def test_damaged_certificate_is_none(found: NodeCredentials) -> None:
    found.file.write_bytes(b"half")
    assert not found.has_certificate("a")
