"""Objects that are kept for a while only: events, as in Kubernetes for an hour after the last news.

Without it a crash-looping pod would fill the store with its own story.
"""

from datetime import datetime, timedelta

import msgspec

from grange.api import timestamps
from grange.api.scheme import AnyKind
from grange.api.timestamps import TimestampError
from grange.apiserver import storage
from grange.apiserver.registry import Registry
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, registry as new_registry
from grange.base.supervision import SkippedObjects
from grange.store.errors import RevisionMismatch, StoreError

EVENTS_KEPT_S = 3600.0  # kube-apiserver's --event-ttl
_EVERY_S = 60.0
_PAGE = 500  # keys a step, so that a sweep does not hold up requests


class _Meta(msgspec.Struct, rename="camel"):
    creation_timestamp: str = ""


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Meta
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    def news(self) -> list[str]:
        """Every time at which the event was observed."""
        observed = self.series.last_observed_time if self.series else None
        instants = (self.metadata.creation_timestamp, self.last_timestamp, self.event_time)
        return [instant for instant in (*instants, observed) if instant]


_decoder = msgspec.json.Decoder(_Event)


class Expiry:
    """Takes old events away.

    Args:
        registry: where they are.
        clock: for their age.
        log: where failed sweeps and unreadable events are logged.
        metrics: where unreadable events are counted; a private registry by default.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        log: Logger,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._log = log
        counts = metrics if metrics is not None else new_registry()
        self._skipped = SkippedObjects("event expiry", log=log, registry=counts)

    async def run(self) -> None:
        """Sweep once a minute until cancelled; a store that refuses is asked again later."""
        while True:
            await self._clock.sleep(_EVERY_S)
            try:
                await self.sweep()
            except StoreError as error:
                self._log.warning("events not expired", error=error)

    async def sweep(self) -> int:
        """Delete the events that were not observed for too long; returns how many.

        Raises:
            StoreError: the store refused.
        """
        info = self._registry.scheme.resource("", "v1", "events")
        if info is None:
            return 0
        oldest = self._clock.now() - timedelta(seconds=EVENTS_KEPT_S)
        store, after, gone = self._registry.store, "", 0
        while True:
            page = await store.list(storage.prefix(info), after=after, limit=_PAGE)
            for entry in page.entries:
                try:
                    last = _last_news(entry.value)
                except (msgspec.MsgspecError, TimestampError) as error:
                    # It stays: its age is not known, and an operator may want to look at it.
                    self._skipped.skip(entry.key, entry.revision, error)
                    continue
                if last < oldest:
                    gone += await self._remove(info, entry.key, entry.value, entry.revision)
            if not page.remaining:
                return gone
            after = page.entries[-1].key

    async def _remove(self, info: AnyKind, key: str, body: bytes, revision: int) -> int:
        try:
            await self._registry.store.delete(
                key, value=lambda at: storage.at_revision(info, body, at), expect=revision
            )
        except RevisionMismatch:
            return 0  # there is news of it after all, or it is gone
        return 1


def _last_news(body: bytes) -> datetime:
    instants = _decoder.decode(body).news()
    if not instants:
        raise TimestampError("the event has no time at all")
    return max(timestamps.parse(instant) for instant in instants)
