"""Cells that several kinds share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grange.api import timestamps
from grange.api.fields import lookup
from grange.api.meta import Document

NONE = "<none>"
UNKNOWN = "<unknown>"

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FieldCell:
    """A cell that shows one field, and so can be described to servers that are not ours.

    Attributes:
        path: of the field.
        show: makes the cell of its value, given the time now.
        dated: the field is an instant, and the cell how long ago that was.
    """

    path: str
    show: Callable[[Any, float], Cell]
    dated: bool = False

    def __call__(self, document: Document, now: float) -> Cell:
        """The cell of a document."""
        return self.show(lookup(document, self.path), now)


def text(path: str, missing: str = NONE) -> FieldCell:
    """The text at a path, or ``missing``."""
    return FieldCell(path, lambda value, _: str(value) if value not in (None, "") else missing)


def integer(path: str, missing: int = 0) -> FieldCell:
    """The integer at a path, or ``missing``."""
    return FieldCell(path, lambda value, _: value if isinstance(value, int) else missing)


def boolean(path: str) -> FieldCell:
    """The boolean at a path; false when it is missing."""
    return FieldCell(path, lambda value, _: bool(value))


def count(*paths: str) -> Callable[[Document, float], Cell]:
    """How many members the mappings or lists at the paths have in all."""

    def cell(document: Document, now: float) -> Cell:
        return sum(len(lookup(document, path) or ()) for path in paths)

    return cell


def since(path: str) -> FieldCell:
    """The age of the instant at a path."""
    return FieldCell(path, age_of, dated=True)


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
