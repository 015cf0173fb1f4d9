"""Watches: a state to begin with, then every change in order, until the caller or the time is up.

Theory of operation. A watch is *initial* events (the state, as ADDED, when the caller has none),
then *live* ones from a store subscription. A selector turns changes into ADDED, MODIFIED or DELETED
by comparing whether the object was and is in the selection. Every event is made into bytes once and
the bytes are shared by all watchers that see it the same way; so is what selectors look at. The
stream is pulled: a caller that does not read fills its subscription's buffer and gets at last
a 410 ERROR event, to list again. Nothing is ever skipped silently.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass

from grange.api import codec
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, Expired
from grange.apiserver import representation, resource_version, selection, storage, write_options
from grange.apiserver.negotiation import Form
from grange.apiserver.representation import Representation
from grange.apiserver.request_info import is_true
from grange.apiserver.selection import ObjectAttributes, Selection
from grange.apiserver.unreadable import UnreadableObjects
from grange.base.bounded import Recent
from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.store.errors import Compacted, FutureRevision, StoreError
from grange.store.interface import Entry, Page, Store, StoreEvent, Subscription

BOOKMARK_EVERY_S = 60.0
_LIFETIME_S = (1800.0, 3600.0)  # spread, so that watchers do not all come back at once
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
_BATCH = 256  # events at once: large enough to be cheap, small enough to interleave
_PAUSE = b""
_CHUNK_BYTES = 256 * 1024
_CACHED_EVENTS = 256  # two generations of a large group commit's worth
_CACHED_BYTES = 2 * 1024 * 1024

_TYPES = {kind: kind.encode() for kind in ("ADDED", "MODIFIED", "DELETED")}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch asks for.

    Attributes:
        after: the revision to go on from; 0 begins with the state.
        send_initial: begin with the state although ``after`` is set, and mark its end.
        bookmarks: send BOOKMARK events while nothing happens.
        lifetime_s: end after so many seconds.
    """

    after: int
    send_initial: bool
    bookmarks: bool
    lifetime_s: float


def watch_options(query: Mapping[str, str], rng: Stream) -> WatchOptions:
    """The options in a query.

    Raises:
        BadRequest: a parameter is malformed.
        Invalid: a parameter does not go with another.
    """
    write_options.check_list_options(query, watch=True)
    send_initial = is_true(query.get("sendInitialEvents"))
    lifetime = float(write_options.integer(query, "timeoutSeconds"))
    return WatchOptions(
        after=resource_version.parse(query.get("resourceVersion") or "0"),
        send_initial=send_initial,
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        lifetime_s=lifetime or rng.uniform(*_LIFETIME_S),
    )


class Watches:
    """All watches of one server, and what they share.

    Args:
        store: where the changes come from.
        clock: for bookmarks and ends.
        rng: spreads the lifetimes.
        work: counts encodings and evaluations.
        unreadable: objects that are left out.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: Stream,
        work: storage.Work,
        unreadable: UnreadableObjects,
    ) -> None:
        self._store = store
        self.clock = clock
        self._rng = rng.fork("watches")
        self.work = work
        self.unreadable = unreadable
        self._readers: dict[tuple[str, str], selection.Reader] = {}
        self._facts: Recent[tuple[int, bool], ObjectAttributes] = Recent(_CACHED_EVENTS)
        self._lines: Recent[tuple[int, str, object], bytes] = Recent(
            _CACHED_EVENTS, max_bytes=_CACHED_BYTES
        )
        self._open: dict[WatchStream, None] = {}  # a set that keeps its order
        self._ending = False

    def __len__(self) -> int:
        """How many are live."""
        return len(self._open)

    def end(self) -> None:
        """End all watches in order, as if their time were up; later ones end after their state."""
        self._ending = True
        for stream in list(self._open):
            stream.end()

    def reader(self, info: AnyKind) -> selection.Reader:
        """The kind's reader of facts."""
        found = self._readers.get((info.group, info.plural))
        if found is None:
            found = selection.Reader(info, self.work, self.unreadable)
            self._readers[info.group, info.plural] = found
        return found

    async def start(
        self, view: Representation, namespace: str, chosen: Selection, query: Mapping[str, str]
    ) -> "WatchStream":
        """The stream of a watch.

        Raises:
            BadRequest: the query is malformed.
            Expired: the revision asked for is no longer kept, or not of this store: list again.
            Timeout: the initial state would be older than what the caller has seen.
            ServiceUnavailable: the store is closed.
        """
        asked = watch_options(query, self._rng)
        prefix = selection.prefix(view.info, namespace, chosen)
        page: Page | None = None
        with storage.translated():
            try:
                if asked.send_initial or asked.after == 0:
                    resource_version.check_seen(self._store, asked.after)
                    page = await self._store.list(prefix)
                subscription = self._store.watch(
                    prefix, after=page.revision if page else asked.after
                )
            except FutureRevision as error:
                raise Expired(
                    f"this server has not seen that revision; list again ({error})"
                ) from error
        stream = WatchStream(self, view, chosen, asked, page, subscription)
        self._open[stream] = None
        if self._ending:
            stream.end()
        return stream

    def forget(self, stream: "WatchStream") -> None:
        """The stream has ended."""
        self._open.pop(stream, None)

    def line(self, view: Representation, kind: str, revision: int, body: bytes) -> bytes:
        """One event as a line; the same event is encoded once for all who see it the same way."""
        identity = (revision, kind, view.identity)
        line = self._lines.get(identity)
        if line is None:
            self.work.event_encodes += 1
            if view.form is not Form.OBJECT:
                try:
                    body = representation.one(view, body, now=self.clock.now(), work=self.work)
                except Exception:  # noqa: BLE001  its initial event was left out and counted
                    return b""
            line = b'{"type":"%b","object":%b}\n' % (_TYPES[kind], body)
            self._lines.put(identity, line, len(line))
        return line

    def change(self, view: Representation, chosen: Selection, event: StoreEvent) -> bytes:
        """The event for a watcher of a change; none if it is outside the selection."""
        previous = event.previous
        if previous is not None and self.unreadable.holds(event.key, previous):
            previous = None  # it was not shown
        if chosen.empty:
            was, is_in = previous is not None, not event.deleted
        else:
            was = previous is not None and self._was_in(view.info, chosen, event, previous)
            is_in = not event.deleted and chosen.matches(
                self._facts_of(view.info, event, event.value, before=False)
            )
        if is_in:
            return self.line(view, "MODIFIED" if was else "ADDED", event.revision, event.value)
        if not was:
            return b""
        body = event.value
        if not event.deleted and previous is not None:
            # It left the selection: the watcher gets it as it last saw it, at the new revision.
            body = storage.at_revision(view.info, previous, event.revision)
        return self.line(view, "DELETED", event.revision, body)

    def _was_in(self, info: AnyKind, chosen: Selection, event: StoreEvent, previous: bytes) -> bool:
        try:
            return chosen.matches(self._facts_of(info, event, previous, before=True))
        except Exception:  # noqa: BLE001  fields may have any shape; it was not in the state either
            return False

    def _facts_of(
        self, info: AnyKind, event: StoreEvent, body: bytes, *, before: bool
    ) -> ObjectAttributes:
        identity = (event.revision, before)
        return self._facts.get(identity) or self._facts.put(
            identity, self.reader(info).read(event.key, body)
        )


class WatchStream:
    """One watch: an asynchronous iterator over chunks of whole lines, to be closed with ``aclose``.

    Closing works on a stream that was never read, too; a plain generator would leak its
    subscription then.
    """

    def __init__(
        self,
        shared: Watches,
        view: Representation,
        chosen: Selection,
        asked: WatchOptions,
        page: Page | None,
        subscription: Subscription,
    ) -> None:
        self._shared = shared
        self._view = view
        self._chosen = chosen
        self._asked = asked
        self._page = page
        self._subscription = subscription
        self._chunks = self._run()

    def __aiter__(self) -> "WatchStream":
        return self

    async def __anext__(self) -> bytes:
        while (chunk := await anext(self._chunks)) is _PAUSE:
            await self._shared.clock.sleep(0)  # there is much to look at: others are served between
        return chunk

    async def aclose(self) -> None:
        """End it and release its subscription; idempotent."""
        self.end()
        self._shared.forget(self)
        await self._chunks.aclose()

    def end(self) -> None:
        """Let the reader see the end, after what it was given already."""
        self._subscription.close()

    async def _run(self) -> AsyncGenerator[bytes, None]:
        clock, asked = self._shared.clock, self._asked
        try:
            for chunk in self._initial():
                yield chunk
            end = clock.monotonic() + asked.lifetime_s
            bookmark = clock.monotonic() + BOOKMARK_EVERY_S
            while (now := clock.monotonic()) < end:
                if now >= bookmark:
                    bookmark = now + BOOKMARK_EVERY_S
                    if asked.bookmarks:
                        yield self._bookmark(self._subscription.progress)
                try:
                    async with clock.timeout(min(end, bookmark) - now):
                        events = await anext(self._subscription)
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    return
                except StoreError as error:
                    yield _error(error)
                    return
                for chunk in self._changes(events):
                    yield chunk
            if asked.bookmarks:  # so that the client goes on from here, and not from further back
                yield self._bookmark(self._subscription.progress)
        finally:
            self.end()
            self._shared.forget(self)

    def _changes(self, events: list[StoreEvent]) -> Iterator[bytes]:
        change, view, chosen = self._shared.change, self._view, self._chosen
        at_once = min(_BATCH, chosen.at_once)
        for at in range(0, len(events), at_once):
            if at:
                yield _PAUSE
            yield from _chunks(change(view, chosen, event) for event in events[at : at + at_once])

    def _initial(self) -> Iterator[bytes]:
        """The state, in chunks; it is let go when they are read."""
        page, self._page = self._page, None
        if page is None:
            return
        reader, chosen = self._shared.reader(self._view.info), self._chosen
        at_once = min(_BATCH, chosen.at_once)
        for at in range(0, len(page.entries), at_once):
            if at:
                yield _PAUSE
            entries = reader.unreadable.readable(page.entries[at : at + at_once])
            yield from _chunks(
                self._added(entry)
                for entry in entries
                if chosen.empty or reader.selects(chosen, entry)
            )
        if self._asked.send_initial and self._asked.bookmarks:
            yield self._bookmark(page.revision, _INITIAL_EVENTS_END)

    def _added(self, entry: Entry) -> bytes:
        """The event of an object; nothing for one that cannot be shown."""
        shared, body = self._shared, entry.value
        if self._view.form is not Form.OBJECT:
            now = shared.clock.now()
            try:
                body = representation.one(self._view, body, now=now, work=shared.work)
            except Exception as error:  # noqa: BLE001  cells trust the shape that schemas promise
                shared.unreadable.skip(entry, error)
                return b""
        return b'{"type":"ADDED","object":%b}\n' % body

    def _bookmark(self, revision: int, annotations: Mapping[str, str] | None = None) -> bytes:
        info = self._view.info
        metadata: Document = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body: Document = {
            "kind": info.kind,
            "apiVersion": info.api_version,
            "metadata": metadata,
        }
        if self._view.form is Form.PARTIAL:
            body |= {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        elif self._view.form is Form.TABLE:
            body = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": [],
                "rows": [],
            }
        return codec.encode({"type": "BOOKMARK", "object": body}) + b"\n"


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines joined, to chunks of some size each; one line is not split."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > _CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)


def _error(error: StoreError) -> bytes:
    api_error: ApiError = (
        Expired(f"too old resource version: {error}; list again")
        if isinstance(error, Compacted)
        else storage.translate(error)
    )
    return codec.encode({"type": "ERROR", "object": api_error.status().document()}) + b"\n"
