"""Alerts to an address: the latest of each, tried until it is taken; the address is never logged.

Theory of operation. What matters of an alert is whether it goes on, so only the last word about each
waits: as many words as there are troubles, however long nobody answers. The receiver knows which
words belong together by the ``key``; a word that it may have heard already does it no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, Counter, Gauge, once_per_registry, registry
from grange.base.rng import Stream
from grange.base.tasks import cleanup
from grange.reconcile.farm.alerts import Alert

Post = Callable[[bytes], Awaitable[int]]
"""Sends a body; answers the HTTP status. Raises ``OSError`` when nobody answers; messages hold no
secret."""

FIRING, RESOLVED = "firing", "resolved"

_TIMEOUT_S = 10.0
_LAST_S = 3.0  # for what waits when the process stops
_RETRY = Exponential(initial_s=1.0, cap_s=300.0)
_GOOD, _BAD = range(200, 300), range(300, 500)  # redirects are not followed
_TRY_AGAIN = {408, 425, 429}


class _Instruments:
    """What is counted of deliveries.

    Attributes:
        deliveries: grange_alert_deliveries_total by outcome: ok, failed (tried again), refused,
            abandoned (the process stopped).
        waiting: grange_alert_waiting: alerts whose last word has not been taken yet.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deliveries = Counter(
            "grange_alert_deliveries",
            "Attempts to deliver alerts to the webhook, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.waiting = Gauge(
            "grange_alert_waiting",
            "Alerts whose last word has not been taken by the webhook yet.",
            registry=registry,
        )


_instruments = once_per_registry(_Instruments)


class WebhookAlerter:
    """POSTs ``{"status": "firing" | "resolved", "key", "about", "reason", "message", "urgency"}``.

    Of each key only the last word waits, and it waits until it is taken: with growing delays, up to
    five minutes, and with the others in turn. An alert whose end comes before anything was sent of
    it is not sent at all. An answer of 3xx or 4xx ends the attempts (the receiver will not think
    otherwise). What still waits when ``run`` is cancelled is tried once more.

    Args:
        post: sends a body.
        clock, rng, log: as everywhere.
        metrics: where deliveries are counted.
    """

    def __init__(
        self,
        post: Post,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._post = post
        self._clock = clock
        self._rng = rng
        self._log = log
        self._waiting: dict[str, tuple[str, Alert]] = {}
        self._begun: set[str] = set()  # the receiver may have heard that these go on
        self._news = asyncio.Event()
        counts = _instruments(metrics if metrics is not None else registry())
        self._count = counts.deliveries.labels
        counts.waiting.set_function(self._waiting.__len__)

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        self._say(FIRING, alert)

    def resolved(self, alert: Alert) -> None:
        """It is over."""
        if alert.key in self._begun:
            self._say(RESOLVED, alert)
        else:
            self._waiting.pop(alert.key, None)

    def adopted(self, alert: Alert) -> None:
        """It goes on: an end that waits is not true any more."""
        self._waiting.pop(alert.key, None)
        self._begun.add(alert.key)

    def left(self, alert: Alert) -> None:
        """It goes on elsewhere: what has not been taken yet is still tried."""
        if alert.key not in self._waiting:
            self._begun.discard(alert.key)

    def dropped(self, alert: Alert) -> None:
        """One that was left is over."""
        if alert.key in self._waiting:
            self.resolved(alert)

    async def run(self) -> None:
        """Send what waits, until cancelled; then once more, for a moment."""
        failures = 0
        try:
            while True:
                if not self._waiting:
                    self._news.clear()
                    await self._news.wait()
                failures = 0 if await self._deliver() else failures + 1
                await self._clock.sleep(_RETRY.delay(failures, self._rng))
        finally:
            if self._waiting:
                await cleanup(self._flush(), limit_s=_LAST_S, clock=self._clock, log=self._log)
            for _, alert in self._waiting.values():
                self._count("abandoned").inc()
                self._log.error("alert not delivered", about=alert.about, reason=alert.reason)

    async def _flush(self) -> None:
        for _ in range(len(self._waiting)):
            if not await self._deliver():
                return  # nobody is there

    def _say(self, status: str, alert: Alert) -> None:
        self._waiting.pop(alert.key, None)
        self._waiting[alert.key] = (status, alert)
        self._news.set()

    async def _deliver(self) -> bool:
        """Try the word that has waited longest; whether it need not be tried again."""
        key, word = next(iter(self._waiting.items()))
        status, alert = word
        if status == FIRING:
            self._begun.add(key)
        answer = await self._send(status, alert)
        outcome = _outcome(answer)
        self._count(outcome).inc()
        if outcome != "ok":
            self._log.warning("alert not taken", reason=alert.reason, answer=answer)
        if self._waiting.get(key) is not word:
            return outcome != "failed"  # there is newer
        del self._waiting[key]
        if outcome == "failed":
            self._waiting[key] = word  # behind the others: it may be the one that is not liked
            return False
        if outcome == "refused":
            self._log.error("alert not delivered", about=alert.about, reason=alert.reason)
        if status == RESOLVED:
            self._begun.discard(key)
        return True

    async def _send(self, status: str, alert: Alert) -> object:
        told = {"status": status, "key": alert.key, **msgspec.to_builtins(alert)}
        try:
            async with self._clock.timeout(_TIMEOUT_S):
                return await self._post(msgspec.json.encode(told))
        except (TimeoutError, OSError) as error:
            return error


def _outcome(answer: object) -> str:
    if not isinstance(answer, int):
        return "failed"
    if answer in _GOOD:
        return "ok"
    return "refused" if answer in _BAD and answer not in _TRY_AGAIN else "failed"
