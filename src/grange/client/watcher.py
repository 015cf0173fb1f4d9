"""A watch's bytes as events: newline-delimited JSON across arbitrary chunk boundaries.

No I/O here. ``Frames.feed`` takes whatever arrived and returns the events that are complete. A
whole chunk is decoded in one call straight into views, one of pods line by line, because other watches
of the process may have shown them; only when that fails (an ``ERROR`` event, a bookmark, an object that
does not fit the view) are its lines looked at one by one.
"""

import re
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectMeta, Resource
from grange.api.scheme import KindInfo
from grange.api.status import (
    ApiError,
    Expired,
    Gone,
    InternalError,
    from_status,
)
from grange.client import pod_views, requests
from grange.client.errors import StreamBroken

R = TypeVar("R", bound=Resource)

MAX_LINE_BYTES = 16 * 1024 * 1024  # ten times the largest object that servers of the field store

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
UNDECODABLE = "UNDECODABLE"  # ours: the object changed, but does not fit our view of its kind


class WatchEvent(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """One change of one object.

    Attributes:
        type: ADDED, MODIFIED, DELETED; BOOKMARK: nothing changed up to this version;
            UNDECODABLE: the object changed, but does not fit our view.
        object: the object after the change (for DELETED its last state); for BOOKMARK and
            UNDECODABLE only ``metadata`` is set, as far as it is known.
    """

    type: str
    object: R


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Code(msgspec.Struct):
    code: int = 500


@cache
def _event_decoder(view: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(WatchEvent[view])  # type: ignore[valid-type]  # a type by value


_POD_EVENT = re.compile(rb'\{"type":"(ADDED|MODIFIED|DELETED)","object":')


def _pod_events(lines: bytes) -> list[Any]:
    return [_pod_event(line) for line in lines.split(b"\n") if line and not line.isspace()]


def _pod_event(line: bytes) -> WatchEvent[Pod]:
    """One event, whose pod may have a view already.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: it has another form, or the pod does not fit the view.
    """
    head = _POD_EVENT.match(line)
    if head is None or not line.endswith(b"}"):
        raise msgspec.DecodeError("not the form in which API servers write events")
    # Where a member follows the object, the pod has trailing characters and is not decoded.
    return WatchEvent(head[1].decode(), pod_views.PODS.decode(line[head.end() : -1]))


_raw_event = msgspec.json.Decoder(_RawEvent)
_resource = msgspec.json.Decoder(Resource)
_code = msgspec.json.Decoder(_Code)


class Frames(Generic[R]):
    """Turns the chunks of one watch into events.

    Args:
        kind: what is watched.
        limit_bytes: no line may be longer.

    Attributes:
        error: the server's last error; events that came before it are returned
            by ``feed`` first, and nothing is read after it.
    """

    def __init__(self, kind: KindInfo[R], *, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.error: ApiError | None = None
        self._kind = kind
        self._decode = _pod_events if kind.view is Pod else _event_decoder(kind.view).decode_lines
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[WatchEvent[R]]:
        """The events completed by this chunk, in order; sets ``error`` at an ERROR event.

        Raises:
            InternalError: a line is longer than the limit or not an event.
        """
        if self.error is not None or not chunk:
            return []
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._hold(chunk)
            return []
        lines = chunk if end == len(chunk) else chunk[:end]
        if self._pieces:
            lines = b"".join((*self._pieces, lines))
            self._pieces.clear()
            self._held = 0
        if end < len(chunk):
            self._hold(chunk[end:])
        try:
            events: list[WatchEvent[R]] = self._decode(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return self._one_by_one(lines)
        for event in events:  # mostly there is one: a generator for ``any`` would cost more
            if event.type == "ERROR":
                return self._one_by_one(lines)
        return events

    def finish(self) -> None:
        """The stream ended.

        Raises:
            StreamBroken: in the middle of an event.
        """
        if self._held and self.error is None:
            raise StreamBroken(
                f"watch of {self._kind.qualified}: the stream broke off inside an event"
            )

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._limit:
            raise InternalError(
                f"watch of {self._kind.qualified}: an event is longer than {self._limit} bytes"
            )
        self._pieces.append(piece)

    def _one_by_one(self, lines: bytes) -> list[WatchEvent[R]]:
        events: list[WatchEvent[R]] = []
        for line in lines.split(b"\n"):
            if not line.strip():
                continue
            try:
                raw = _raw_event.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise InternalError(
                    f"watch of {self._kind.qualified}: not an event: {error}"
                ) from error
            if raw.type == "ERROR":
                self.error = _error_of(bytes(raw.object))
                break
            events.append(self._event(raw))
        return events

    def _event(self, raw: _RawEvent) -> WatchEvent[R]:
        if raw.type != BOOKMARK:
            try:
                view: R = requests.object_decoder(self._kind.view).decode(raw.object)
                return WatchEvent(raw.type, view)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return WatchEvent(UNDECODABLE, self._kind.view(metadata=_meta_of(raw.object)))
        return WatchEvent(BOOKMARK, self._kind.view(metadata=_meta_of(raw.object)))


def _meta_of(body: msgspec.Raw) -> ObjectMeta:
    try:
        return _resource.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ObjectMeta()


def _error_of(body: bytes) -> ApiError:
    """The error of an ERROR event; every kind of "gone" means: list again."""
    try:
        code = _code.decode(body).code
    except (msgspec.MsgspecError, UnicodeDecodeError):
        code = 500
    error = from_status(code, body)
    if isinstance(error, Gone) and not isinstance(error, Expired):
        return Expired(error.message)
    return error
