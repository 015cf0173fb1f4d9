"""JSON merge patch, RFC 7386: members replace members, null removes, anything but objects is whole."""

from dataclasses import dataclass
from typing import Any

from grange.api import codec
from grange.api.meta import Document
from grange.api.status import BadRequest


@dataclass(frozen=True, slots=True)
class MergePatch:
    """A merge patch as a change of documents (``apply``), which those who know it may make shorter."""

    patch: Document

    def __call__(self, document: Document) -> Document:
        """The document with the patch merged in."""
        return apply(document, self.patch)


def apply(document: Document, patch: Document) -> Document:
    """The document with the patch merged in; neither is changed, nothing is shared.

    Raises:
        BadRequest: the patch is no object.
    """
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be an object")
    return _merge(document, patch)


def _merge(target: Any, patch: dict[str, Any]) -> Document:
    # Recursion is bounded by the depth of the patch, which codec bounds.
    merged: Document = {}
    if isinstance(target, dict):
        for key, value in target.items():
            if key not in patch:
                merged[key] = codec.clone(value)
            elif (change := patch[key]) is not None:
                merged[key] = _changed(value, change)
    for key, change in patch.items():
        if change is not None and key not in merged:
            merged[key] = _changed(None, change)
    return merged


def _changed(value: Any, change: Any) -> Any:
    return _merge(value, change) if isinstance(change, dict) else codec.clone(change)


def difference(old: Document, new: Document) -> Document:
    """The merge patch that makes one document of another: what is gone is null, at every depth.

    Empty where they are equal. ``new`` must have no null: a merge patch cannot write one.
    """
    patch: Document = {key: None for key in old if key not in new}
    for key, value in new.items():
        held = old.get(key)
        if held == value:
            continue
        if isinstance(value, dict) and isinstance(held, dict):
            patch[key] = difference(held, value)
        else:
            patch[key] = value
    return patch
