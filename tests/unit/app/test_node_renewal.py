"""An agent that runs for longer than its certificate is valid stays a node."""

import ssl
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import given, strategies as st

from grange.api import x509_facts
from grange.api.certificate_requests import CertificateTemplate
from grange.app import certificates, node_certificates, node_renewal
from grange.app.certificate_commands import MakeRequest
from grange.app.node_credentials import JoinFailed
from grange.app.node_renewal import NodeRenewal
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.pytest_plugin import Records

DAY_S = 86_400.0
LIFE = timedelta(days=6)


class Authority:
    """Signs for a node, unless it is to fail; remembers when."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.file = directory / "node.pem"
        self.failures: list[Exception] = []
        self.tries: list[datetime] = []
        self._directory = directory
        self._clock = clock
        certificates.ensure(directory, names=["localhost"], now=clock.now())
        self.sign()

    def sign(self) -> None:
        made = node_certificates.make(MakeRequest("system:node:a", "system:nodes"))
        template = CertificateTemplate("system:node:a", "system:nodes", (), True, LIFE)
        now = self._clock.now()
        pem = node_certificates.sign(self._directory, made.request, template, now)
        self.file.write_bytes(pem + made.key)

    async def renew(self) -> None:
        self.tries.append(self._clock.now())
        if self.failures:
            raise self.failures.pop()
        self.sign()


class LoadedContext(ssl.SSLContext):
    """Counts what is loaded."""

    loaded = 0

    def load_cert_chain(self, *args: object, **more: object) -> None:
        super().load_cert_chain(*args, **more)  # type: ignore[arg-type]  # passed on as they are
        self.loaded += 1


async def renewed_for(
    days: float, authority: Authority, clock: Clock, rng: Stream, log: Logger
) -> LoadedContext:
    context = LoadedContext(ssl.PROTOCOL_TLS_CLIENT)
    renewal = NodeRenewal(authority.file, context, authority.renew, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(renewal.run())
        await clock.sleep(days * DAY_S)
        nursery.cancel()
    return context


async def test_certificate_is_renewed_at_two_thirds(
    tmp_path: Path, clock: Clock, rng: Stream, log: Logger
) -> None:
    authority, began = Authority(tmp_path, clock), clock.now()
    context = await renewed_for(20, authority, clock, rng, log)
    assert context.loaded == len(authority.tries) >= 4
    for before, after in zip([began, *authority.tries], authority.tries, strict=False):
        assert 0.59 * LIFE < after - before < 0.71 * LIFE
    assert x509_facts.read(authority.file.read_bytes()).not_after > clock.now()


async def test_missing_certificate_is_fetched_at_once(
    tmp_path: Path, clock: Clock, rng: Stream, log: Logger
) -> None:
    authority = Authority(tmp_path, clock)
    for damage in (authority.file.unlink, lambda: authority.file.write_bytes(b"half")):
        damage()
        authority.tries.clear()
        context = await renewed_for(0.01, authority, clock, rng, log)
        assert (len(authority.tries), context.loaded) == (1, 1)


async def test_failed_renewal_is_tried_again_before_the_end(
    tmp_path: Path, clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    authority = Authority(tmp_path, clock)
    end = x509_facts.read(authority.file.read_bytes()).not_after
    authority.failures = [JoinFailed("refused"), OSError("full")] * 10
    context = await renewed_for(5.5, authority, clock, rng, log)
    assert (len(authority.tries), context.loaded) == (21, 1)
    assert authority.tries[-1] < end
    waits = [b - a for a, b in zip(authority.tries, authority.tries[1:], strict=False)]
    assert waits[0] < timedelta(seconds=15)
    assert max(waits) < timedelta(minutes=75)
    reported = [event for event, _ in records]
    assert reported.count("node certificate not renewed") == 20
    assert reported.count("node certificate renewed") == 1


@given(st.integers(1, 10_000), st.timedeltas())
def test_retry_delay_is_bounded(failures: int, left: timedelta) -> None:
    assert 10 <= node_renewal.retry_delay(failures, left) <= 3600
