"""What an agent does with the certificate that it finds."""

import base64
import contextlib
from datetime import timedelta
from pathlib import Path

import pytest

from grange.api.certificate_requests import CertificateTemplate
from grange.api.http import Request, Response
from grange.api.kinds import CERTIFICATESIGNINGREQUEST
from grange.app import certificates, node_certificates
from grange.app.certificate_commands import MakeRequest
from grange.app.certificate_process import CertificateProcess
from grange.app.node_credentials import JoinFailed, JoinTarget, NodeCredentials
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline
from grange.base.rng import Stream
from grange.sim.api_fixture import ApiFixture, Handler, opened

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


@pytest.mark.parametrize(("signed_after_s", "looks"), [(0.0, 2), (0.05, 3), (1.0, 13)])
async def test_certificate_is_looked_for_soon_and_then_less_often(
    found: NodeCredentials,
    tmp_path: Path,
    clock: Clock,
    rng: Stream,
    log: Logger,
    signed_after_s: float,
    looks: int,
) -> None:
    times: list[float] = []

    async def count(request: Request, server: Handler) -> Response:
        if request.method == "GET":
            times.append(clock.monotonic())
        return await server(request)

    async with opened(ApiFixture(clock, rng, log)) as world:
        world.intercept = count
        world.nursery.start(_sign(world, tmp_path, signed_after_s))
        with contextlib.closing(CertificateProcess(Inline())) as process:
            credentials = NodeCredentials(tmp_path / "agent", process, clock)
            await credentials.renew(world.new_client(), TARGET)
    assert len(times) == looks
    assert times[-1] - times[0] <= signed_after_s + 0.1


async def _sign(world: ApiFixture, authority: Path, after_s: float) -> None:
    """Sign the first request, so long after it is made."""
    kind, clock = CERTIFICATESIGNINGREQUEST, world.clock
    while not (there := (await world.client.list(kind)).items):
        await clock.sleep(0.001)
    await clock.sleep(after_s)
    asked = base64.b64decode(there[0].spec.request)
    template = CertificateTemplate("system:node:a", "system:nodes", (), True, timedelta(days=1))
    pem = node_certificates.sign(authority, asked, template, clock.now())
    patch = {"status": {"certificate": base64.b64encode(pem).decode()}}
    await world.client.patch(kind, there[0].metadata.name, patch=patch, subresource="status")
