"""Informers: a local, always converging copy of a collection, with handlers of its changes.

Theory of operation. A list gives a state and its version; a watch from that version gives every
change after it. A watch that ends is resumed from the last version seen, so nothing is listed
again for a broken connection. When the server no longer has that version (``Expired``), or has
gone back behind it (a restored backup), the collection is listed again and compared with the
store: what is missing now was deleted, whenever that happened.

The store changes before handlers run, so a handler that wakes a worker wakes it to the new state.
Handlers are called in order, synchronously; they should only note a key. One that raises is
logged and changes nothing for the others.

Versions are opaque, but where they are whole numbers (every known server) they are compared: an
event that is not newer than what we have is a duplicate and is dropped; one that comes out of
order shows that the stream broke its promise, and the collection is listed again.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from grange.api.meta import ObjectKey, Resource
from grange.api.scheme import KindInfo
from grange.api.status import ApiError, Expired, NotFound, Timeout
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, registry
from grange.base.rng import Stream
from grange.base.supervision import SkippedObjects, services
from grange.base.tasks import Nursery, supervise
from grange.client.client import Client, WatchEvent
from grange.client.errors import StreamBroken
from grange.reconcile.indexer import Indexer
from grange.reconcile.interning import Sharing
from grange.reconcile.outage import OUTAGE_CAP_S, is_outage

R = TypeVar("R", bound=Resource)


_HEALTHY_S = 1.0  # a watch that lasts so long ends a series of failures
_TICK_S = 1e-3  # what adding floats leaves over may be too little for any clock to notice
_TURN_EVENTS = 128  # a server in this process may always have more: let the others run, too
_BACKOFF = Exponential(initial_s=0.2, cap_s=30.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class InformerSettings:
    """How an informer talks to its server.

    Attributes:
        page: objects a list request asks for at once; big collections come in pages so that
            decoding one never holds the loop for long.
        stale_after_s: with neither events nor bookmarks for so long, the watch is taken for dead
            and resumed. Servers send a bookmark about once a minute.
        watch_s: how long a watch lasts before the server ends it and it is resumed; drawn again
            for every watch from [watch_s, 2·watch_s], so that many do not end at once.
        backoff: delays after consecutive failures.
        share_from: from so many objects on they are stored with shared parts (see ``sharing``);
            below, there is little to gain.
    """

    page: int = 500
    stale_after_s: float = 150.0
    watch_s: float = 300.0
    backoff: Exponential = _BACKOFF
    share_from: int = 10_000


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    """Counts since the start, and how many objects there are now."""

    objects: int
    lists: int
    watches: int
    events: int
    dropped: int
    undecodable: int
    failures: int
    handler_errors: int


@dataclass(frozen=True, slots=True)
class _Handler(Generic[R]):
    on_add: Callable[[R], object] | None
    on_update: Callable[[R, R], object] | None
    on_delete: Callable[[R], object] | None


class _OutOfOrder(Exception):
    """An event is older than one before it, and is news."""


class _WentBack(Exception):
    """The server's version is lower than one it gave before: it was restored."""


def _comparable(version: str) -> int | None:
    return int(version) if version.isdecimal() else None


_ABSENT_S = 30.0  # between looks whether a kind is served by now


class Informer(Generic[R]):
    """A converging copy of one collection.

    Args:
        client: where from.
        kind: what.
        namespace: only this namespace; empty means all.
        labels: label selector.
        fields: field selector.
        clock: time.
        rng: jitter.
        log: where failures go.
        settings: paging, staleness, backoff.
        metrics: where objects that cannot be read are counted; a private registry by default.

    Attributes:
        store: the copy; read it at any time.
        synced: set when the first list is in the store and the handlers have been called, or when
            the server turned out not to serve the kind (yet).
    """

    def __init__(  # noqa: PLR0913  a selection is four of them, and the tools are handed in
        self,
        client: Client,
        kind: KindInfo[R],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        clock: Clock,
        rng: Stream,
        log: Logger,
        settings: InformerSettings | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self.store: Indexer[R] = Indexer(self._index_failed)
        self.synced = asyncio.Event()
        self._sharing = Sharing()
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._clock = clock
        self._rng = rng
        self._log = log.bind(informer=kind.qualified)
        counts = metrics if metrics is not None else registry()
        loops = (f"{part} {kind.qualified}" for part in ("informer", "index", "handlers"))
        self._unread, self._unindexed, self._unhandled = (
            SkippedObjects(loop, log=self._log, registry=counts) for loop in loops
        )
        self._settings = settings or InformerSettings()
        self._share_from = self._settings.share_from
        self._handlers: list[_Handler[R]] = []
        self._version = ""  # resume from here; empty means list first
        self._seen = 0  # the same as a number, where it is one
        self._last_delivery = 0.0  # when the watch last delivered anything
        self._attempt = 0  # consecutive failures
        self._relisting = False  # the last trouble of this series was a history that was gone
        self._listed = False
        self._lists = self._watches = self._events = self._dropped = 0
        self._undecodable = self._failures = self._handler_errors = 0

    @property
    def kind(self) -> KindInfo[R]:
        """What is watched."""
        return self._kind

    @property
    def has_synced(self) -> bool:
        """Whether the store has shown a complete state once."""
        return self.synced.is_set()

    @property
    def resource_version(self) -> str:
        """The version that the store has reached; empty before the first list."""
        return self._version

    def add_handler(
        self,
        on_add: Callable[[R], object] | None = None,
        on_update: Callable[[R, R], object] | None = None,
        on_delete: Callable[[R], object] | None = None,
    ) -> None:
        """Register handlers: ``on_add(new)``, ``on_update(old, new)``, ``on_delete(last)``.

        What is in the store already is delivered as adds, at once. ``on_delete`` is also called for
        objects that a list shows to be gone; it gets the last state that we saw. An object that
        was deleted and created again under its name is a delete and an add, never an update.
        """
        handler = _Handler(on_add, on_update, on_delete)
        self._handlers.append(handler)
        if on_add is not None:
            for obj in self.store.list():
                self._call(on_add, obj)

    def statistics(self) -> InformerStatistics:
        """Counts since the start."""
        return InformerStatistics(
            objects=len(self.store),
            lists=self._lists,
            watches=self._watches,
            events=self._events,
            dropped=self._dropped,
            undecodable=self._undecodable,
            failures=self._failures,
            handler_errors=self._handler_errors,
        )

    async def run(self) -> None:
        """Keep the copy up to date until cancelled; failures of the API are retried forever."""
        while True:
            asked_s, cap_s = 0.0, math.inf
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                continue
            except (Expired, _OutOfOrder, _WentBack) as error:
                self._log.info("listing again", reason=error)
                self._version = ""
                if not self._relisting:
                    # The server answers: what failed before was something else. A server that
                    # goes on refusing what it listed itself is asked ever less often.
                    self._relisting, self._attempt = True, 0
            except ApiError as error:
                if _is_future(error):
                    self._version = ""
                self._failures += 1
                cap_s = OUTAGE_CAP_S if is_outage(error) else math.inf
                asked_s = float(error.details.retry_after_seconds)
                if isinstance(error, NotFound) and not self._listed:
                    # A cluster that never served the kind has no objects of it; it may learn it.
                    if not self.synced.is_set():
                        self._log.info("the server has no such kind; looking again", error=error)
                        self.synced.set()
                else:
                    attempt = self._attempt + 1
                    self._log.warning("list or watch failed", attempt=attempt, error=error)
                if isinstance(error, NotFound):
                    asked_s = _ABSENT_S
            # The first trouble after good times is retried at once: mostly it is a connection
            # that ended or a history that was compacted. From the second on it waits.
            delay_s = self._settings.backoff.delay(self._attempt, self._rng)
            await self._clock.sleep(max(min(delay_s, cap_s), asked_s))
            self._attempt += 1

    # --- list -------------------------------------------------------------------------------

    async def _list(self) -> None:
        self._lists += 1
        listed, version = await self._pages()
        number = _comparable(version) or 0
        if number < self._seen:
            self._log.warning("the server went back in time", was=self._seen, now=number)
        self._replace(listed)
        self._listed = True
        self._version = version
        self._seen = number
        if not self.synced.is_set():
            self._log.debug("synced", objects=len(self.store))
            self.synced.set()

    async def _pages(self) -> tuple[dict[ObjectKey, R], str]:
        """The whole collection and its version; in one piece if its pages expire meanwhile."""
        limit = self._settings.page
        while True:
            listed: dict[ObjectKey, R] = {}
            token = version = ""
            try:
                while True:
                    page = await self._client.list(
                        self._kind,
                        self._namespace,
                        labels=self._labels,
                        fields=self._fields,
                        limit=limit,
                        cont=token,
                    )
                    for message in page.undecodable:
                        self._undecodable += 1
                        self._unread.skip(message, "", message, "object left out")
                    for obj in page.items:
                        many = len(listed) >= self._share_from
                        listed[obj.key] = self._sharing.slim(obj) if many else obj
                    # The first page's: should later ones be newer, the watch delivers it again.
                    version = version or page.resource_version
                    token = page.next
                    if not token:
                        return listed, version
                    await self._clock.sleep(0)
            except Expired:
                if not token:
                    raise
                limit = 0

    def _replace(self, listed: dict[ObjectKey, R]) -> None:
        """Make the store equal to a list and deliver the differences."""
        for key in [obj.key for obj in self.store if obj.key not in listed]:
            self._forget(key)
        for key, obj in listed.items():
            self._store(key, obj, listed=True)

    # --- watch ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """One watch, until the server ends it; raises whatever else ends it."""
        self._watches += 1
        started = self._last_delivery = self._clock.monotonic()
        failure: Exception | None = None
        # A separate guard task costs nothing for an event; a timeout around each would.
        async with Nursery("watch") as nursery:
            nursery.start(self._guard(nursery), name=f"guard {self._kind.qualified}")
            failure = await self._read()
            nursery.cancel()
        if self._clock.monotonic() - started >= _HEALTHY_S:
            self._relisting, self._attempt = False, 0
        elif failure is None:
            failure = StreamBroken("the watch ended as soon as it had begun")
        if failure is not None:
            raise failure

    async def _guard(self, nursery: Nursery) -> None:
        """End the watch when nothing has arrived for too long."""
        limit = self._settings.stale_after_s
        while (idle := self._clock.monotonic() - self._last_delivery) < limit:
            await self._clock.sleep(max(_TICK_S, limit - idle))
        self._log.warning("watch went silent", after_s=limit)
        nursery.cancel()

    async def _read(self) -> Exception | None:
        """Apply events until the watch ends; what ended it, None if the server ended it."""
        batches = self._client.watch_batches(
            self._kind,
            self._namespace,
            resource_version=self._version,
            labels=self._labels,
            fields=self._fields,
            timeout_s=self._settings.watch_s * self._rng.uniform(1.0, 2.0),
        )
        in_turn = 0
        async with aclosing(batches):
            try:
                async for batch in batches:
                    self._last_delivery = self._clock.monotonic()
                    self._apply(batch)
                    in_turn += len(batch)
                    if in_turn >= _TURN_EVENTS:
                        in_turn = 0
                        await self._clock.sleep(0)
            except (ApiError, _OutOfOrder, _WentBack) as error:
                return error
        return None

    def _apply(self, batch: Sequence[WatchEvent[R]]) -> None:
        self._events += len(batch)
        for event in batch:
            version = event.object.metadata.resource_version
            number = int(version) if version.isdecimal() else None
            if number is None:
                self._change(event)
            elif event.type == "BOOKMARK":
                if number < self._seen:
                    raise _WentBack(f"bookmark {number} after {self._seen}")
                self._seen = number
            elif number > self._seen:
                self._change(event)
                self._seen = number
            elif self._is_known(event, number):
                self._dropped += 1
                continue
            else:
                raise _OutOfOrder(f"{event.type} {event.object.key} {number} after {self._seen}")
            if version:
                self._version = version

    def _is_known(self, event: WatchEvent[R], number: int) -> bool:
        """Whether an event of a known version brings no change either."""
        old = self.store.get(event.object.key)
        if old is None:
            return event.type == "DELETED"
        return (_comparable(old.metadata.resource_version) or 0) >= number

    def _change(self, event: WatchEvent[R]) -> None:
        kind, obj = event.type, event.object
        if kind == "MODIFIED" or kind == "ADDED":  # noqa: PLR1714  the likely one first
            self._store(obj.key, obj)
        elif kind == "DELETED":
            self._forget(obj.key, obj)
        elif kind == "UNDECODABLE":
            self._undecodable += 1
            version, why = obj.metadata.resource_version, "it does not fit our view"
            what = "change left out: the object does not fit our view"
            self._unread.skip(obj.key, version, why, what)

    # --- store, then handlers ---------------------------------------------------------------

    def _store(self, key: ObjectKey, obj: R, *, listed: bool = False) -> None:
        old = self.store.get(key)
        if old is not None:
            if old.metadata.uid != obj.metadata.uid:
                self._forget(key)
                old = None
            elif old.metadata.resource_version == obj.metadata.resource_version:
                self._dropped += 1
                return
        if not listed and len(self.store) >= self._share_from:  # what is listed shares already
            obj = self._sharing.slim(obj, old)
        self.store.put(key, obj, old)
        for handler in self._handlers:
            if old is None:
                if handler.on_add is not None:
                    self._call(handler.on_add, obj)
            elif handler.on_update is not None:
                self._call(handler.on_update, old, obj)

    def _forget(self, key: ObjectKey, last: R | None = None) -> None:
        old = self.store.remove(key)
        if old is None:
            return
        if last is None or last.metadata.uid != old.metadata.uid:
            last = old
        for handler in self._handlers:
            if handler.on_delete is not None:
                self._call(handler.on_delete, last)

    def _call(self, handler: Callable[..., object], *objects: R) -> None:
        try:
            handler(*objects)
        except Exception as error:  # noqa: BLE001  one bad handler must not blind the others
            self._handler_errors += 1
            obj, name = objects[-1], getattr(handler, "__qualname__", "handler")
            what = f"{obj.key} in {name}"
            self._unhandled.skip(what, obj.metadata.resource_version, error, "handler failed")

    def _index_failed(self, obj: R, error: Exception) -> None:
        self._unindexed.skip(obj.key, obj.metadata.resource_version, error, "index failed")


def _is_future(error: ApiError) -> bool:
    """Whether the server reports that it has not reached our version (it was restored)."""
    return isinstance(error, Timeout) and any(
        cause.reason == "ResourceVersionTooLarge" for cause in error.causes
    )


class InformerFactory:
    """Shared informers: one for each selection.

    Args:
        client: where from.
        clock: time.
        rng: each informer draws from its own stream.
        log: where failures go.
        settings: for all informers.
        metrics: where unreadable objects and crashes are counted; a private registry by default.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        settings: InformerSettings | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._log = log
        self._settings = settings
        self._metrics = metrics if metrics is not None else registry()
        self._informers: dict[tuple[str, ...], Informer[Resource]] = {}
        self._nursery: Nursery | None = None

    def __iter__(self) -> Iterator[Informer[Resource]]:
        """The informers in the order they were asked for."""
        return iter(list(self._informers.values()))

    def informer(
        self, kind: KindInfo[R], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Informer[R]:
        """The informer of a selection; it runs when the factory runs."""
        identity = (kind.group, kind.version, kind.plural, namespace, labels, fields)
        known = self._informers.get(identity)
        if known is not None:
            return known  # type: ignore[return-value]  # the identity fixes the kind
        informer = Informer(
            self._client,
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            clock=self._clock,
            rng=self._rng.fork("/".join(identity)),
            log=self._log,
            settings=self._settings,
            metrics=self._metrics,
        )
        self._informers[identity] = informer  # type: ignore[assignment]  # read back by kind
        if self._nursery is not None:
            self._start(self._nursery, informer)  # type: ignore[arg-type]  # read back by kind
        return informer

    def _start(self, nursery: Nursery, informer: Informer[Resource]) -> None:
        """Run an informer; a crash costs this one collection a delay, and no other anything."""
        name = f"informer {informer.kind.qualified}"
        states = services(self._metrics)
        nursery.start(
            supervise(name, informer.run, clock=self._clock, log=self._log, services=states),
            name=name,
        )

    async def run(self) -> None:
        """Run all informers, those asked for later included, until cancelled."""
        async with Nursery("informers") as nursery:
            self._nursery = nursery
            try:
                for informer in self:
                    self._start(nursery, informer)
                await asyncio.Event().wait()
            finally:
                self._nursery = None

    async def wait_synced(self) -> None:
        """Wait until every informer has shown a complete state; bound it with a timeout."""
        for informer in self:
            await informer.synced.wait()
