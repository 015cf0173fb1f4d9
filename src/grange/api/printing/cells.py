"""Cells that several kinds share."""

from collections.abc import Callable
from typing import Any

from grange.api import timestamps
from grange.api.fields import lookup
from grange.api.meta import Document

NONE = "<none>"
UNKNOWN = "<unknown>"

Cell = str | int | float | bool | None


def text(path: str, missing: str = NONE) -> Callable[[Document, float], Cell]:
    """The text at a path, or ``missing``."""

    def cell(document: Document, now: float) -> Cell:
        value = lookup(document, path)
        return str(value) if value not in (None, "") else missing

    return cell


def integer(path: str, missing: int = 0) -> Callable[[Document, float], Cell]:
    """The integer at a path, or ``missing``."""

    def cell(document: Document, now: float) -> Cell:
        value = lookup(document, path)
        return value if isinstance(value, int) else missing

    return cell


def boolean(path: str) -> Callable[[Document, float], Cell]:
    """The boolean at a path; false when it is missing."""

    def cell(document: Document, now: float) -> Cell:
        return bool(lookup(document, path))

    return cell


def count(*paths: str) -> Callable[[Document, float], Cell]:
    """How many members the mappings or lists at the paths have in all."""

    def cell(document: Document, now: float) -> Cell:
        return sum(len(lookup(document, path) or ()) for path in paths)

    return cell


def since(path: str) -> Callable[[Document, float], Cell]:
    """The age of the instant at a path."""

    def cell(document: Document, now: float) -> Cell:
        return age_of(lookup(document, path), now)

    return cell


def age_of(instant: Any, now: float) -> str:
    """The age of an RFC 3339 instant, or ``<unknown>``."""
    if not isinstance(instant, str):
        return UNKNOWN
    try:
        return timestamps.age(now - timestamps.parse(instant).timestamp())
    except timestamps.TimestampError:
        return UNKNOWN


def labels(path: str) -> Callable[[Document, float], Cell]:
    """A map of labels as ``a=b,c=d``, sorted."""

    def cell(document: Document, now: float) -> Cell:
        found = lookup(document, path)
        if not isinstance(found, dict) or not found:
            return NONE
        return ",".join(f"{key}={found[key]}" for key in sorted(found))

    return cell


name = text("metadata.name", "")
age = since("metadata.creationTimestamp")
