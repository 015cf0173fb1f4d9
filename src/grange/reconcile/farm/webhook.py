"""Alerts to an address: queued, retried, bounded; the address may hold a secret and is never logged."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.reconcile.farm.alerts import Alert

Post = Callable[[bytes], Awaitable[int]]
"""Sends a body; answers the HTTP status. Raises ``OSError`` when nobody answers; messages hold no
secret."""

_WAITING = 100
_TIMEOUT_S = 10.0
_ATTEMPTS = 5
_RETRY = Exponential(initial_s=1.0, cap_s=30.0)
_GOOD, _BAD = range(200, 300), range(400, 500)
_TRY_AGAIN = {408, 425, 429}


class WebhookAlerter:
    """POSTs ``{"status": "firing" | "resolved", "about", "reason", "message", "urgency"}``.

    What waits is bounded: when there are too many, the oldest is dropped, and that is logged. An
    alert whose end comes before it was sent is not sent at all. An answer of 4xx ends the attempts
    (the receiver will not think otherwise); anything else is tried five times.

    Args:
        post: sends a body.
        clock, rng, log: as everywhere.
    """

    def __init__(self, post: Post, *, clock: Clock, rng: Stream, log: Logger) -> None:
        self._post = post
        self._clock = clock
        self._rng = rng
        self._log = log
        self._waiting: deque[tuple[str, Alert]] = deque()
        self._news = asyncio.Event()

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        self._add("firing", alert)

    def resolved(self, alert: Alert) -> None:
        """It is over."""
        identity = (alert.about, alert.reason)
        for entry in self._waiting:
            if entry[0] == "firing" and (entry[1].about, entry[1].reason) == identity:
                self._waiting.remove(entry)
                return
        self._add("resolved", alert)

    async def run(self) -> None:
        """Send what waits, in order, until cancelled."""
        while True:
            while self._waiting:
                status, alert = self._waiting.popleft()
                await self._send(status, alert)
            self._news.clear()
            await self._news.wait()

    def _add(self, status: str, alert: Alert) -> None:
        if len(self._waiting) >= _WAITING:
            _, dropped = self._waiting.popleft()
            self._log.error("alert dropped: too many wait", reason=dropped.reason)
        self._waiting.append((status, alert))
        self._news.set()

    async def _send(self, status: str, alert: Alert) -> None:
        body = msgspec.json.encode({"status": status, **msgspec.to_builtins(alert)})
        for attempt in range(1, _ATTEMPTS + 1):
            answer: object
            try:
                async with self._clock.timeout(_TIMEOUT_S):
                    answer = code = await self._post(body)
                if code in _GOOD:
                    return
                if code in _BAD and code not in _TRY_AGAIN:
                    break
            except (TimeoutError, OSError) as error:
                answer = error
            self._log.warning(
                "alert not taken", reason=alert.reason, attempt=attempt, answer=answer
            )
            if attempt < _ATTEMPTS:
                await self._clock.sleep(_RETRY.delay(attempt, self._rng))
        self._log.error("alert not delivered", about=alert.about, reason=alert.reason)
