"""The patch of ``apply``: what is wanted now, compared with the last apply and with what exists.

What was applied last and is wanted no more is removed; what others set stays. The schema defines which
lists have items with a key, as for kubectl: such items are merged one by one, so that a server or
another program may add fields to an item, and items to the list. Other lists are replaced.
"""

from typing import Any

from grange.api.meta import Document
from grange.api.patch import merge_patch
from grange.api.schema.definitions import Definitions, Schema, builtin, definitions_of, reference
from grange.api.scheme import AnyKind

_NOTHING: Schema = {}


def three_way(
    last: Document, wanted: Document, present: Document, kind: AnyKind | None = None
) -> Document:
    """The merge patch (RFC 7386) that brings ``present`` to ``wanted``.

    Args:
        last: the manifest of the last apply; empty if there was none.
        wanted: the manifest.
        present: the object.
        kind: of the object; without its schema all lists are replaced.
    """
    if kind is None or not kind.schema:
        return _Merge(builtin()).patch(last, wanted, present, _NOTHING)
    return _Merge(definitions_of(kind)).patch(last, wanted, present, reference(kind.schema))


class _Merge:
    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def patch(
        self, last: Document, wanted: Document, present: Document, schema: Schema
    ) -> Document:
        patch: Document = {key: None for key in last if key not in wanted and key in present}
        for key, value in wanted.items():
            there, before, part = present.get(key), last.get(key), self._part(schema, key)
            if isinstance(value, dict) and isinstance(there, dict):
                inner = self.patch(before if isinstance(before, dict) else {}, value, there, part)
                if inner:
                    patch[key] = inner
                continue
            whole = value
            if isinstance(value, list) and isinstance(there, list):
                whole = self._list(before if isinstance(before, list) else [], value, there, part)
            if whole != there:
                patch[key] = whole
        return patch

    def _list(self, last: list[Any], wanted: list[Any], present: list[Any], schema: Schema) -> Any:
        """The whole list as it shall be."""
        key = str(schema.get("x-kubernetes-patch-merge-key", ""))
        lists = [_by_key(items, key) for items in (last, wanted, present)]
        if not key or any(found is None for found in lists):
            return wanted
        before, now, there = (found or {} for found in lists)
        part = self._definitions.resolve(schema).get("items") or _NOTHING
        merged = [
            merge_patch.apply(
                there[name], self.patch(before.get(name, {}), item, there[name], part)
            )
            if name in there
            else item
            for name, item in now.items()
        ]
        theirs = [name for name in there if name not in now and name not in before]
        return merged + [there[name] for name in theirs]

    def _part(self, schema: Schema, name: str) -> Schema:
        whole = self._definitions.resolve(schema)
        found: Schema = (whole.get("properties") or {}).get(name) or _NOTHING
        return found


def _by_key(items: list[Any], key: str) -> dict[Any, Document] | None:
    """Items by their keys; None if one has none, or two have the same."""
    found: dict[Any, Document] = {}
    for item in items:
        name = item.get(key) if isinstance(item, dict) else None
        if not isinstance(name, str | int) or name in found:
            return None
        found[name] = item
    return found
