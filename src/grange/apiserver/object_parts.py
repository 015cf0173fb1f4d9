"""The parts of an object that are written apart: status, and everything else."""

from collections.abc import Callable

from grange.api.meta import Document
from grange.api.scheme import AnyKind

Part = Callable[[AnyKind, Document, Document], Document]
"""Which part of an object a write may touch: kind, old and new document to what is stored."""


def main_part(info: AnyKind, old: Document, new: Document) -> Document:
    """Everything but the status, where the status is a subresource."""
    if not info.has_status:
        return new
    kept = {field: value for field, value in new.items() if field != "status"}
    if "status" in old:
        kept["status"] = old["status"]
    return kept


def status_part(info: AnyKind, old: Document, new: Document) -> Document:
    """The old object with the new status."""
    kept = {field: value for field, value in old.items() if field != "status"}
    if new.get("status") is not None:
        kept["status"] = new["status"]
    return kept
