"""The certificates of an agent that runs for longer than they are valid."""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from grange.api import x509_facts
from grange.api.x509_facts import CertificateFacts
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream

_SHARE = (0.6, 0.7)
_RETRY_FIRST_S = 10.0
_RETRY_MAX_S = 3600.0
_CHECK_MAX_S = 24 * 3600.0


def renewal_time(facts: CertificateFacts, share: float) -> datetime:
    """When a certificate is to be renewed: at a share of its life."""
    return facts.not_before + (facts.not_after - facts.not_before) * share


def retry_delay(failures: int, left: timedelta) -> float:
    """Seconds until the next try; the less life is left, the sooner."""
    doubled = _RETRY_FIRST_S * 2.0 ** min(failures - 1, 20)
    return max(_RETRY_FIRST_S, min(doubled, _RETRY_MAX_S, left.total_seconds() / 10))


class NodeRenewal:
    """Renews a certificate of a node at about two thirds of its life; gets it if there is none.

    Connections that are open go on with the former certificate, and the server closes them at its
    end; new ones take the present one from the context.

    Args:
        file: has the certificate and its key.
        context: of the transport or the server.
        renew: asks for another certificate and writes it to the file.
        clock: time.
        rng: spreads the renewals of nodes that joined together.
        log: where renewals and failures go.
    """

    def __init__(
        self,
        file: Path,
        context: ssl.SSLContext,
        renew: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
    ) -> None:
        self._file = file
        self._context = context
        self._renew = renew
        self._clock = clock
        self._rng = rng
        self._log = log

    async def run(self) -> None:
        """Renew until cancelled; a failure is logged and tried again."""
        while True:
            await self._renewed(await self._due())

    async def _due(self) -> datetime:
        """Wait until the certificate is to be renewed; when it ends."""
        facts = None
        with suppress(OSError, x509_facts.CertificateUnreadable):
            facts = x509_facts.read(self._file.read_bytes())
        if facts is None:
            return self._clock.now()
        due = renewal_time(facts, self._rng.uniform(*_SHARE))
        while (left_s := (due - self._clock.now()).total_seconds()) > 0:
            # A clock that is set, or a machine that sleeps, shifts the end of a long wait.
            await self._clock.sleep(min(left_s, _CHECK_MAX_S))
        return facts.not_after

    async def _renewed(self, until: datetime) -> None:
        failures = 0
        while True:
            try:
                await self._renew()
                self._context.load_cert_chain(self._file)
                end = x509_facts.read(self._file.read_bytes()).not_after
                self._log.info("node certificate renewed", until=end.isoformat())
                return
            except (GrangeError, OSError) as error:
                failures += 1
                delay_s = retry_delay(failures, until - self._clock.now())
                self._log.warning(
                    "node certificate not renewed",
                    error=error,
                    until=until.isoformat(),
                    retry_s=delay_s,
                )
                await self._clock.sleep(delay_s * self._rng.uniform(0.8, 1.2))
