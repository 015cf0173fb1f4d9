"""Alerts to a webhook: the latest state of each, retried until accepted, repeated while it lasts.

Only the latest state of an alert waits for delivery, so the queue is bounded by the number of alerts
however long the receiver does not answer. The receiver deduplicates by ``key``. The URL, which may
hold a secret, is never logged.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

import msgspec

from grange.alerts.alerts import Alert, SinkTools
from grange.api.timestamps import rfc3339
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, Counter, Gauge, once_per_registry, registry
from grange.base.rng import Stream
from grange.base.tasks import cleanup

Post = Callable[[bytes], Awaitable[int]]
"""Sends a body and returns the HTTP status. Raises ``OSError`` without an answer; messages hold no
secret."""

FIRING, RESOLVED = "firing", "resolved"

_REPEAT_S = 300.0
_EXPIRY = 3  # repeats that must be missed before an alert is over: its process is gone
_TIMEOUT_S = 10.0
_FLUSH_S = 3.0  # for what waits when the process stops
_RETRY = Exponential(initial_s=1.0, cap_s=300.0)
_ACCEPTED, _REFUSED = range(200, 300), range(300, 500)  # redirects are not followed
_RETRYABLE = {408, 425, 429}


class _Instruments:
    """Metrics of deliveries.

    Attributes:
        deliveries: grange_alert_deliveries_total by outcome: ok, failed (retried), refused,
            abandoned (the process stopped).
        waiting: grange_alert_waiting: alerts whose latest state is not delivered.
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
            "Alerts whose latest state the webhook has not accepted yet.",
            registry=registry,
        )


_instruments = once_per_registry(_Instruments)


def from_url(url: str, tools: SinkTools) -> "WebhookSink":
    """A sink that POSTs to an ``http`` or ``https`` URL."""
    return WebhookSink(
        post_to(url), clock=tools.clock, rng=tools.rng, log=tools.log, metrics=tools.metrics
    )


class WebhookSink:
    """POSTs ``{"status", "key", "about", "reason", "message", "urgency", "endsAt"}`` as JSON.

    ``status`` is ``firing`` or ``resolved``. ``endsAt`` (RFC 3339) of a firing alert is when it is
    over unless it is sent again, which happens every ``repeat_s`` while it lasts; of a resolved one
    it is now. Deliveries are retried with growing delays of at most five minutes, alerts in turn. An
    alert that is resolved before the first attempt is not sent. A response of 3xx or 4xx (other than
    408, 425, 429) ends the attempts. When ``run`` is cancelled, what waits is tried once more.

    Args:
        post: sends a body.
        clock, rng, log: injected.
        metrics: where deliveries are counted.
        repeat_s: an alert that lasts is sent again after this many seconds, and is over after three
            times as many without.
    """

    def __init__(
        self,
        post: Post,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        metrics: CollectorRegistry | None = None,
        repeat_s: float = _REPEAT_S,
    ) -> None:
        self._post = post
        self._repeat_s = repeat_s
        self._clock = clock
        self._rng = rng
        self._log = log
        self._waiting: dict[str, tuple[str, Alert]] = {}  # by key; the oldest first
        self._attempted: set[str] = set()  # firing, and the receiver may know of them
        self._repeats: dict[str, tuple[float, Alert]] = {}  # when to send again; the next one first
        self._changed = asyncio.Event()
        instruments = _instruments(metrics if metrics is not None else registry())
        self._count = instruments.deliveries.labels
        instruments.waiting.set_function(self._waiting.__len__)

    def raised(self, alert: Alert) -> None:
        """Queue it as firing."""
        self._enqueue(FIRING, alert)

    def resolved(self, alert: Alert) -> None:
        """Queue it as resolved, unless the receiver cannot know of it."""
        self._repeats.pop(alert.key, None)
        if alert.key in self._attempted:
            self._enqueue(RESOLVED, alert)
        else:
            self._waiting.pop(alert.key, None)

    def released(self, alert: Alert) -> None:
        """Stop sending it: the process that owns the object sends it from now on."""
        self._repeats.pop(alert.key, None)
        self._waiting.pop(alert.key, None)
        self._attempted.discard(alert.key)

    async def run(self) -> None:
        """Deliver until cancelled; then try what waits once more, for three seconds at most."""
        failures = 0
        try:
            while True:
                await self._next()
                failures = 0 if await self._deliver() else failures + 1
                await self._clock.sleep(_RETRY.delay(failures, self._rng))
        finally:
            if self._waiting:
                await cleanup(self._flush(), limit_s=_FLUSH_S, clock=self._clock, log=self._log)
            for _, alert in self._waiting.values():
                self._count("abandoned").inc()
                self._log.error("alert not delivered", about=alert.about, reason=alert.reason)

    async def _next(self) -> None:
        """Wait until there is something to deliver."""
        while True:
            now = self._clock.monotonic()
            for key, (due, alert) in list(self._repeats.items()):
                if due > now:
                    break
                del self._repeats[key]
                self._enqueue(FIRING, alert)
            if self._waiting:
                return
            self._changed.clear()
            next_due = next((due - now for due, _ in self._repeats.values()), None)
            with suppress(TimeoutError):
                async with self._clock.timeout(next_due):
                    await self._changed.wait()

    async def _flush(self) -> None:
        for _ in range(len(self._waiting)):
            if not await self._deliver():
                return  # no receiver answers

    def _enqueue(self, status: str, alert: Alert) -> None:
        self._waiting.pop(alert.key, None)
        self._waiting[alert.key] = (status, alert)
        self._changed.set()

    async def _deliver(self) -> bool:
        """Send the state that has waited longest.

        Returns:
            Whether it need not be retried.
        """
        key, state = next(iter(self._waiting.items()))
        status, alert = state
        if status == FIRING:
            self._attempted.add(key)
        answer = await self._send(status, alert)
        outcome = _outcome(answer)
        self._count(outcome).inc()
        if outcome != "ok":
            self._log.warning("alert not accepted", reason=alert.reason, answer=answer)
        if self._waiting.get(key) is not state:
            return outcome != "failed"  # a newer state waits, or none
        del self._waiting[key]
        if outcome == "failed":
            self._waiting[key] = state  # behind the others, which the receiver may accept
            return False
        if outcome == "refused":
            self._log.error("alert not delivered", about=alert.about, reason=alert.reason)
        elif status == FIRING:
            self._repeats[key] = (self._clock.monotonic() + self._repeat_s, alert)
        if status == RESOLVED:
            self._attempted.discard(key)
        return True

    async def _send(self, status: str, alert: Alert) -> object:
        lasts_s = _EXPIRY * self._repeat_s if status == FIRING else 0.0
        ends_at = rfc3339(self._clock.now() + timedelta(seconds=lasts_s))
        body = {"status": status, "key": alert.key, **msgspec.to_builtins(alert), "endsAt": ends_at}
        try:
            async with self._clock.timeout(_TIMEOUT_S):
                return await self._post(msgspec.json.encode(body))
        except (TimeoutError, OSError) as error:
            return error


def _outcome(answer: object) -> str:
    if not isinstance(answer, int):
        return "failed"
    if answer in _ACCEPTED:
        return "ok"
    return "refused" if answer in _REFUSED and answer not in _RETRYABLE else "failed"


def post_to(url: str) -> Post:
    """POST JSON to a URL, on a new connection each time, since alerts are rare.

    Redirects are not followed: they could lead to addresses that only this machine reaches.
    """
    # The library's own context has no authorities where it was imported without them.
    context = ssl.create_default_context() if urlsplit(url).scheme == "https" else True

    async def post(body: bytes) -> int:
        import aiohttp

        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    url,
                    data=body,
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                    ssl=context,
                ) as answer,
            ):
                return answer.status
        except (aiohttp.ClientError, OSError) as error:
            # The library's messages may repeat the URL, and with it a secret.
            raise ConnectionError(type(error).__name__) from None

    return post
