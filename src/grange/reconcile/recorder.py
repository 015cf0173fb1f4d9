"""The event recorder: writes Events about objects, and never blocks its caller.

``event`` only notes; ``run`` sends. Equal Events about the same object become one
Event whose ``count`` and ``lastTimestamp`` grow, also while it still waits to be sent. The queue
is bounded: when the server is slow or away, further events are dropped and counted, and the caller
never notices. So are the Events about one object (25 at once, then one in five minutes, as in the
field): a message that changes with every failure must not fill the store.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from grange.api import timestamps
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document, Resource
from grange.api.scheme import AnyKind, KindInfo
from grange.api.status import ApiError, NotFound
from grange.base.backoff import TokenBucket
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, registry
from grange.base.rng import Stream
from grange.client.client import Client
from grange.reconcile.metrics import instruments

V = TypeVar("V")

NORMAL = "Normal"
WARNING = "Warning"

_EVENTS = KindInfo("", "v1", "Event", "events", Resource, "")  # answers are only acknowledged
_KINDS: dict[type[Resource], AnyKind] = {info.view: info for info in BUILT_IN}
_REMEMBERED = 4096  # as many as the field's correlator
_BURST = 25
_REFILL_S = 300.0
_FRESH_S = 600.0  # a repetition after longer is a new Event
_MESSAGE_CHARS = 1024  # the API's limit


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """Counts since the start, and how many wait now."""

    waiting: int
    sent: int
    counted: int
    dropped: int
    failed: int


@dataclass(slots=True)
class _Series:
    """One Event object: its content, its count, and how much of that the server has."""

    document: Document
    namespace: str
    name: str
    count: int
    last: str
    last_at: float
    known: bool = False  # the server has it
    queued: bool = False


class Recorder:
    """Records Events on behalf of one component; ``run`` it in the component's nursery.

    Args:
        client: where to.
        component: the reporting component, e.g. ``replication-controller``.
        clock: for timestamps and freshness.
        rng: for names.
        log: for events that could not be sent.
        metrics: where counts go; a private registry by default.
        limit: no more Events than this wait to be sent.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        metrics: CollectorRegistry | None = None,
        limit: int = 1000,
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._rng = rng.fork(f"recorder.{component}")
        self._log = log.bind(component=component)
        self._limit = limit
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._queue: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], TokenBucket] = OrderedDict()
        self._wanted: asyncio.Event = asyncio.Event()
        counters = instruments(metrics if metrics is not None else registry()).events
        self._counters = {
            outcome: counters.labels(component, outcome)
            for outcome in ("sent", "counted", "dropped", "failed")
        }
        self._counts = dict.fromkeys(self._counters, 0)

    def event(
        self,
        obj: Resource,
        type: str,  # noqa: A002  the field's word for it
        reason: str,
        message: str,
        *,
        kind: AnyKind | None = None,
    ) -> None:
        """Note that something happened to an object; returns at once and never raises.

        Args:
            obj: the object; its namespace is the Event's (``default`` for cluster-scoped ones).
            type: ``Normal`` or ``Warning``.
            reason: one CamelCase word, stable, for programs.
            message: one sentence for people.
            kind: the object's kind, where it is not built in and the object may not have it
                (items of lists).
        """
        message = message[:_MESSAGE_CHARS]
        kind = kind or _KINDS.get(obj.__class__)
        api_version = kind.api_version if kind is not None else obj.api_version
        name = kind.kind if kind is not None else obj.kind
        meta = obj.metadata
        identity = (api_version, name, meta.namespace, meta.name, meta.uid, type, reason, message)
        series = self._series.get(identity)
        if series is None and self.full:
            self.drop()
            return
        now = self._clock.monotonic()
        stamp = timestamps.rfc3339(self._clock.now())
        if series is not None and now - series.last_at <= _FRESH_S:
            series.count += 1
            self._count("counted")
        else:
            involved: Document = {
                "apiVersion": api_version,
                "kind": name,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            }
            series = self._new(involved, type, reason, message, stamp)
        if series.queued or self._admits(identity[:5], now):
            series.last, series.last_at = stamp, now
            _remember(self._series, identity, series)
            series.queued = True
            self._queue[identity] = series
            self._wanted.set()
        else:
            self._count("dropped")

    @property
    def full(self) -> bool:
        """Whether a new event would be dropped now."""
        return len(self._queue) >= self._limit

    def drop(self, number: int = 1) -> None:
        """Count events that were not even made because the recorder is full."""
        self._count("dropped", number)

    def statistics(self) -> RecorderStatistics:
        """Counts since the start, and how many wait now."""
        return RecorderStatistics(waiting=len(self._queue), **self._counts)

    async def run(self) -> None:
        """Send what is noted, in order, until cancelled. What cannot be sent is logged and lost."""
        while True:
            while self._queue:
                identity, series = self._queue.popitem(last=False)
                series.queued = False
                await self._send(identity, series)
            self._wanted.clear()
            await self._wanted.wait()

    async def flush(self) -> None:
        """Send what is noted now and return: for orderly shutdown, bounded by the caller."""
        while self._queue:
            identity, series = self._queue.popitem(last=False)
            series.queued = False
            await self._send(identity, series)

    def _new(
        self, involved: Document, type_: str, reason: str, message: str, stamp: str
    ) -> _Series:
        namespace = involved["namespace"] or "default"
        name = f"{involved['name'][:230]}.{self._rng.integer(0, 2**63 - 1):016x}"
        document: Document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "reason": reason,
            "message": message,
            "type": type_,
            "firstTimestamp": stamp,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        return _Series(document, namespace, name, 1, stamp, 0.0)

    def _admits(self, about: tuple[str, ...], now: float) -> bool:
        """Whether one more Event may wait, and is allowed for this object."""
        if self.full:
            return False
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = TokenBucket(rate_per_s=1.0 / _REFILL_S, burst=_BURST)
        _remember(self._buckets, about, bucket)
        return bucket.try_take(now)

    async def _send(self, identity: tuple[str, ...], series: _Series) -> None:
        try:
            if series.known:
                change = {"count": series.count, "lastTimestamp": series.last}
                try:
                    await self._client.patch(_EVENTS, series.name, series.namespace, patch=change)
                except NotFound:  # expired or deleted: create it again, with the whole count
                    series.known = False
            if not series.known:
                document = {**series.document, "count": series.count, "lastTimestamp": series.last}
                await self._client.create(_EVENTS, document, series.namespace)
                series.known = True
        except ApiError as error:
            self._count("failed")
            self._series.pop(identity, None)
            self._log.warning("event not recorded", reason=series.document["reason"], error=error)
            return
        self._count("sent")

    def _count(self, outcome: str, number: int = 1) -> None:
        self._counts[outcome] += number
        self._counters[outcome].inc(number)


def _remember(memory: OrderedDict[tuple[str, ...], V], key: tuple[str, ...], value: V) -> None:
    """Keep the value as the newest; forget the oldest beyond the limit."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)
