"""Kubernetes' strategic merge patch: a merge patch that knows which lists are keyed.

Theory of operation. The schema says of each list whether it is *atomic* (the patch's list replaces
it) or *merged*: a list of objects by a merge key, or a list of plain values as a set. Within a
patch, members whose names begin with ``$`` direct the merge:

==============================  ==================================================================
``$patch: delete``              in an object: it becomes empty; in an item of a keyed list: the item
                                with its key goes
``$patch: replace``             the object, or the list that has such an item, is not merged but
                                replaced by what else the patch says
``$patch: merge``               the default, said aloud
``$retainKeys: [k, …]``         members of the object that are not listed go
``$setElementOrder/f: […]``     the order of the merged list ``f``: keys, or plain values
``$deleteFromPrimitiveList/f``  values that go from the set ``f``
==============================  ==================================================================

Order of a merged list: items that the patch (or ``$setElementOrder``) names, in its order; every
other item stays in front of the first named item that it was in front of before, or else at the end.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from grange.api import codec
from grange.api.fields import entry, member
from grange.api.meta import Document
from grange.api.schema.definitions import Definitions, Schema, builtin, reference
from grange.api.status import BadRequest
from grange.api.validation.causes import shown

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_tokens = msgspec.json.Encoder(order="sorted")
_DIRECTIVES = ("delete", "merge", "replace")


def apply(
    document: Document,
    patch: Document,
    schema_name: str,
    definitions: Definitions | None = None,
) -> Document:
    """The document with the patch merged in; neither is changed, nothing is shared.

    Args:
        document: as it is.
        patch: decoded by ``codec``, which bounds its depth.
        schema_name: the definition that says which lists are keyed; one that is not known makes
            every list atomic.
        definitions: where to look it up; the built-in ones unless given.

    Raises:
        BadRequest: the patch is no object, or misuses a directive (names where).
    """
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be an object")
    merger = _Merger(definitions or builtin())
    if patch.get(_PATCH) == "delete":
        raise BadRequest('a patch may not delete the whole object with "$patch"; delete it instead')
    merged: Document = merger.object(codec.clone(document), patch, reference(schema_name), "")
    return merged


class _Merger:
    """Merges patches into a document that it owns; patches are only read."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def object(self, target: Document, patch: Document, schema: Schema, path: str) -> Document:
        directive = patch.get(_PATCH)
        if directive is not None:
            if directive not in _DIRECTIVES:
                raise _fault(path, f'"{_PATCH}" must be one of {", ".join(_DIRECTIVES)}')
            if directive == "delete":
                return {}
            if directive == "replace":
                target = {}
        retained = patch.get(_RETAIN)
        if retained is not None:
            _retain(target, patch, retained, path)
        schema = self._definitions.resolve(schema)
        has_directives = False
        for name, change in patch.items():
            if name.startswith("$"):
                has_directives = True
            elif change is None:
                target.pop(name, None)
            elif isinstance(change, dict):
                part, at = self._member(schema, name), member(path, name)
                target[name] = self._merged_object(target.get(name), change, part, at)
            elif isinstance(change, list):
                part, at = self._member(schema, name), member(path, name)
                order = patch.get(f"{_ORDER}{name}")
                target[name] = self._list(target.get(name), change, order, part, at)
            else:
                target[name] = change
        if has_directives:
            self._directed_lists(target, patch, schema, path)
        return target

    def _merged_object(self, target: Any, change: Document, schema: Schema, path: str) -> Document:
        replaced = "replace" in _strategies(schema)
        if replaced or not isinstance(target, dict):
            # Merging into nothing strips the directives that a patch may carry.
            target = {}
        return self.object(target, change, schema, path)

    def _directed_lists(self, target: Document, patch: Document, schema: Schema, path: str) -> None:
        """Lists that the patch deletes from, or orders without changing an item."""
        for directive, values in patch.items():
            if directive.startswith(_DELETE):
                name = directive.removeprefix(_DELETE)
            elif directive.startswith(_ORDER):
                name = directive.removeprefix(_ORDER)
            elif directive.startswith("$") and directive not in (_PATCH, _RETAIN):
                raise _fault(path, f"unknown directive {shown(directive)}")
            else:
                continue
            at = member(path, name)
            if not isinstance(values, list):
                raise _fault(at, f'"{directive}" must be a list')
            held = target.get(name)
            if not isinstance(held, list):
                continue
            if directive.startswith(_DELETE):
                gone = {_token(value, "") for value in values}
                target[name] = [item for item in held if _token(item, "") not in gone]
            elif patch.get(name) is None:
                key = _merge_key(self._member(schema, name))
                target[name] = _ordered(held, values, held, key)

    def _list(
        self, target: Any, change: list[Any], order: Any, schema: Schema, path: str
    ) -> list[Any]:
        held: list[Any] = target if isinstance(target, list) else []
        key = _merge_key(schema)
        if "merge" not in _strategies(schema):
            return [self._plain(item) for item in change]
        items = self._definitions.resolve(schema).get("items") or {}
        if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in change):
            rest = [item for item in change if not isinstance(item, dict) or _PATCH not in item]
            return [self._plain(item) for item in rest]
        merged = self._keyed(held, change, key, items, path) if key else _union(held, change)
        if order is None:
            return _ordered(merged, change, held, key)
        named = {_token(item, key) for item in order} if isinstance(order, list) else set()
        for item in change:
            if _token(item, key) not in named and not _is_deletion(item):
                raise _fault(path, f'"{_ORDER}…" must list every item that the patch has')
        return _ordered(merged, order, held, key)

    def _keyed(
        self, held: list[Any], change: list[Any], key: str, items: Schema, path: str
    ) -> list[Any]:
        merged: dict[bytes, Any] = {}
        copies: dict[bytes, list[bytes]] = {}
        for index, item in enumerate(held):
            token = _token(item, key)
            # An item that is there twice under one key stays there twice; the first one is merged.
            if token in merged:
                copy = b"%d:%b" % (index, token)
                copies.setdefault(token, []).append(copy)
                merged[copy] = item
            else:
                merged[token] = item
        for item in change:
            if not isinstance(item, dict) or item.get(key) is None:
                raise _fault(path, f'every item of the patch needs its merge key "{key}"')
            token = _token(item, key)
            if _is_deletion(item):
                for known in (token, *copies.pop(token, ())):
                    merged.pop(known, None)
            else:
                name = item[key]
                at = entry(path, f"{key}={name if isinstance(name, str) else shown(name)}")
                merged[token] = self._merged_object(merged.get(token), item, items, at)
        return list(merged.values())

    def _plain(self, value: Any) -> Any:
        """A patch's value as it goes into an atomic list: a copy without directives."""
        return self.object({}, value, {}, "") if isinstance(value, dict) else codec.clone(value)

    def _member(self, schema: Schema, name: str) -> Schema:
        """The schema of a member, with the patch strategy that stands beside a reference."""
        properties = schema.get("properties") or {}
        found: Schema = properties.get(name) or schema.get("additionalProperties") or {}
        return found


def _retain(target: Document, patch: Document, retained: Any, path: str) -> None:
    if not isinstance(retained, list):
        raise _fault(path, f'"{_RETAIN}" must be a list')
    kept = frozenset(name for name in retained if isinstance(name, str))
    for name, change in patch.items():
        if not name.startswith("$") and change is not None and name not in kept:
            raise _fault(path, f'"{_RETAIN}" leaves out {shown(name)}, which the patch sets')
    for name in list(target):
        if name not in kept:
            del target[name]


def _strategies(schema: Schema) -> Sequence[str]:
    return str(schema.get("x-kubernetes-patch-strategy", "")).split(",")


def _merge_key(schema: Schema) -> str:
    return str(schema.get("x-kubernetes-patch-merge-key", ""))


def _is_deletion(item: Any) -> bool:
    return isinstance(item, dict) and item.get(_PATCH) == "delete"


def _token(item: Any, key: str) -> bytes:
    """What identifies an item: the value of its merge key, or the item itself."""
    return _tokens.encode(item.get(key) if key and isinstance(item, dict) else item)


def _union(held: list[Any], change: list[Any]) -> list[Any]:
    """Both lists as one set, in order of appearance."""
    return list({_token(item, ""): item for item in (*held, *codec.clone(change))}.values())


def _ordered(merged: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """``merged`` in the wanted order; see the theory of operation."""
    wanted = {_token(item, key): at for at, item in enumerate(order)}
    old = {_token(item, key): at for at, item in enumerate(before)}
    named: list[tuple[int, int, Any]] = []
    rest: list[tuple[int, Any]] = []
    for item in merged:
        token = _token(item, key)
        at = old.get(token, -1)
        if token in wanted:
            named.append((wanted[token], at, item))
        else:
            rest.append((at, item))
    named.sort(key=lambda entry: entry[0])
    result: list[Any] = []
    taken = 0
    for _, at, item in named:
        while taken < len(rest) and rest[taken][0] < at:
            result.append(rest[taken][1])
            taken += 1
        result.append(item)
    return result + [item for _, item in rest[taken:]]


def _fault(path: str, message: str) -> BadRequest:
    return BadRequest(f"strategic merge patch, {path or 'at the top'}: {message}")
