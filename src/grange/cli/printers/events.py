"""Events as rows, the latest last."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

from grange.api import timestamps
from grange.api.fields import lookup
from grange.api.meta import Document
from grange.api.timestamps import TimestampError
from grange.cli.printers import documents

HEADING = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
WIDE_HEADING = ("SOURCE", "COUNT", "NAME")
_LATEST = ("series.lastObservedTime", "lastTimestamp", "eventTime")
_CREATED = "metadata.creationTimestamp"


def last_seen(event: Document) -> datetime | None:
    """When it happened last; None if the event has no time."""
    return _first_of(event, (*_LATEST, "firstTimestamp", _CREATED))


def in_order(
    events: Iterable[Document], event_of: Callable[[Document], Document] = lambda item: item
) -> list[Document]:
    """The events by when they happened last; those without a time come first.

    Most times are whole seconds: within one, the order is that in which they were written.

    Args:
        events: events, or what holds one each.
        event_of: gives the event.
    """

    def at(item: Document) -> tuple[float, int]:
        event = event_of(item)
        seen = last_seen(event)
        return seen.timestamp() if seen else 0.0, documents.version(event)

    return sorted(events, key=at)


def age(event: Document, now: float) -> str:
    """How long ago, in kubectl's words: ``5s``, or ``5s (x3 over 2m)`` for what came again.

    Args:
        event: the event.
        now: wall time in seconds since the epoch.
    """
    seen = last_seen(event)
    if seen is None:
        return "<unknown>"
    ago = timestamps.age(now - seen.timestamp())
    count = lookup(event, "series.count") or event.get("count") or 1
    first = _first_of(event, ("firstTimestamp", "eventTime", _CREATED))
    if count == 1 or first is None:
        return ago
    return f"{ago} (x{count} over {timestamps.age(now - first.timestamp())})"


def row(event: Document, *, now: float, namespace: bool) -> list[str]:
    """The cells under ``HEADING``, with the namespace before them where it is wanted."""
    about = event.get("involvedObject") or {}
    cells = [
        age(event, now),
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{about.get('kind', '')}/{about.get('name', '')}",
        str(event.get("message", "")).strip(),
    ]
    where = str((event.get("metadata") or {}).get("namespace", ""))
    return [where, *cells] if namespace else cells


def wide(event: Document) -> list[str]:
    """The cells under ``WIDE_HEADING``."""
    source = event.get("reportingComponent") or lookup(event, "source.component") or ""
    count = lookup(event, "series.count") or event.get("count") or 1
    return [str(source), str(count), str(lookup(event, "metadata.name") or "")]


def _first_of(event: Document, paths: Iterable[str]) -> datetime | None:
    for path in paths:
        if text := lookup(event, path):
            with suppress(TimestampError):  # ignore a malformed time
                return timestamps.parse(str(text))
    return None
