"""The server certificate of a process that runs for longer than the certificate is valid."""

import ssl
from collections.abc import Awaitable, Callable
from datetime import datetime

from grange.app.key_files import Keys, KeysUnusable
from grange.base.clock import Clock
from grange.base.log import Logger

EVERY_S = 12 * 3600.0
"""Seconds between checks: keys are renewed weeks before their end, so many checks may fail."""


class Renewal:
    """Renews the certificate of a TLS context in time; connections that are open stay.

    Args:
        context: of the listener.
        renew: makes what is missing or near its end, at a wall time; see ``pki.MakeKeys``.
        clock: time.
        log: where renewals and failures go.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        renew: Callable[[datetime], Awaitable[Keys]],
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._context = context
        self._renew = renew
        self._clock = clock
        self._log = log
        self._served = b""

    async def run(self) -> None:
        """Check twice a day until cancelled; a failure is logged and tried again."""
        while True:
            await self._clock.sleep(EVERY_S)
            try:
                keys = await self._renew(self._clock.now())
                present = keys.server_certificate.read_bytes()
                if present != self._served:
                    # The same file again does no harm: the first check after a start is one.
                    keys.load_into(self._context)
                    self._served = present
                    self._log.info("server certificate loaded")
            except (KeysUnusable, OSError) as error:
                self._log.warning("server certificate not renewed", error=error)
