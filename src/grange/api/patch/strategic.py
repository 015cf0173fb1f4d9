"""Kubernetes' strategic merge patch: a merge patch that knows which lists are keyed.

Theory of operation. The schema defines for each list whether it is *atomic* (the patch's list replaces
it) or *merged*: a list of objects by a merge key, or a list of plain values as a set. Within a
patch, members whose names begin with ``$`` direct the merge:

==============================  ==================================================================
``$patch: delete``              in an object: it becomes empty; in an item of a keyed list: the item
                                with its key goes
``$patch: replace``             the object, or the list that has such an item, is not merged but
                                replaced by the rest of the patch
``$patch: merge``               the default, stated explicitly
``$retainKeys: [k, …]``         members of the object that are not listed go
``$setElementOrder/f: […]``     the order of the merged list ``f``: keys, or plain values
``$deleteFromPrimitiveList/f``  values that go from the set ``f``
==============================  ==================================================================

Order of a merged list: items that the patch (or ``$setElementOrder``) names, in its order; every
other item stays in front of the first named item that it was in front of before, or else at the end.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from grange.api import codec
from grange.api.fields import entry, member
from grange.api.meta import Document
from grange.api.schema.definitions import Definitions, Schema, builtin, reference
from grange.api.status import BadRequest, shown

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_tokens = msgspec.json.Encoder(order="sorted")
_DIRECTIVES = ("delete", "merge", "replace")

# Where something is: the path of what it is in, and how its own part is shown. Made into text for
# messages only.
_Path: TypeAlias = "tuple[_Path, Callable[[str, Any], str], Any] | None"


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
        schema_name: the definition of which lists are keyed; one that is not known makes
            every list atomic.
        definitions: where to look it up; the built-in ones unless given.

    Raises:
        BadRequest: the patch is no object, or misuses a directive (names where).
    """
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be an object")
    if patch.get(_PATCH) == "delete":
        raise BadRequest('a patch may not delete the whole object with "$patch"; delete it instead')
    if definitions is None:
        rules = _built_in_rules(schema_name)
    else:
        rules = _Rules(reference(schema_name), definitions, {})
    return _merge(codec.clone(document), patch, rules, None)


class _Rules:
    """How values of a schema are merged; made once for each schema of the built-in kinds.

    Attributes:
        merges: whether a list is merged with what is there.
        replaces: whether an object replaces what is there.
        key: the merge key of a list.
    """

    def __init__(
        self, schema: Schema, definitions: Definitions, all_rules: "dict[int, _Rules]"
    ) -> None:
        strategies = str(schema.get("x-kubernetes-patch-strategy", "")).split(",")
        self.merges = "merge" in strategies
        self.replaces = "replace" in strategies
        self.key = str(schema.get("x-kubernetes-patch-merge-key", ""))
        self._schema = schema  # held, as it is known by its identity
        self._resolved = definitions.resolve(schema)
        self._definitions = definitions
        self._all = all_rules
        self._members: dict[str, _Rules] = {}
        self._others: _Rules | None = None
        self._items: _Rules | None = None

    @property
    def items(self) -> "_Rules":
        """The rules of the items of a list."""
        if self._items is None:
            self._items = self._of(self._resolved.get("items") or {})
        return self._items

    def member(self, name: str) -> "_Rules":
        """The rules of a member, by the patch strategy next to a reference."""
        found = self._members.get(name)
        if found is not None:
            return found
        schema = (self._resolved.get("properties") or {}).get(name)
        if schema:
            found = self._members[name] = self._of(schema)
            return found
        if self._others is None:
            self._others = self._of(self._resolved.get("additionalProperties") or {})
        return self._others

    def _of(self, schema: Schema) -> "_Rules":
        found = self._all.get(id(schema))
        if found is None:
            found = _Rules(schema, self._definitions, self._all)
            if schema:  # the empty ones above are not the same one each time
                self._all[id(schema)] = found
        return found


@lru_cache(maxsize=256)
def _built_in_rules(name: str) -> _Rules:
    return _Rules(reference(name), builtin(), {})


def _merge(target: Document, patch: Document, rules: _Rules, path: _Path) -> Document:
    """Merge a patch, which is only read, into an object, which may be changed."""
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
    has_directives = False
    for name, change in patch.items():
        if name.startswith("$"):
            has_directives = True
        elif change is None:
            target.pop(name, None)
        elif isinstance(change, dict):
            target[name] = _merged_object(
                target.get(name), change, rules.member(name), (path, member, name)
            )
        elif isinstance(change, list):
            order = patch.get(f"{_ORDER}{name}")
            target[name] = _merged_list(
                target.get(name), change, order, rules.member(name), (path, member, name)
            )
        else:
            target[name] = change
    if has_directives:
        _direct_lists(target, patch, rules, path)
    return target


def _merged_object(target: Any, change: Document, rules: _Rules, path: _Path) -> Document:
    if rules.replaces or not isinstance(target, dict):
        # Merging into nothing strips the directives that a patch may carry.
        target = {}
    return _merge(target, change, rules, path)


def _direct_lists(target: Document, patch: Document, rules: _Rules, path: _Path) -> None:
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
        if not isinstance(values, list):
            raise _fault((path, member, name), f'"{directive}" must be a list')
        held = target.get(name)
        if not isinstance(held, list):
            continue
        if directive.startswith(_DELETE):
            gone = {_token(value, "") for value in values}
            target[name] = [item for item in held if _token(item, "") not in gone]
        elif patch.get(name) is None:
            target[name] = _ordered(held, values, held, rules.member(name).key)


def _merged_list(
    target: Any, change: list[Any], order: Any, rules: _Rules, path: _Path
) -> list[Any]:
    held: list[Any] = target if isinstance(target, list) else []
    key = rules.key
    if not rules.merges:
        return [_plain(item) for item in change]
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in change):
        rest = [item for item in change if not isinstance(item, dict) or _PATCH not in item]
        return [_plain(item) for item in rest]
    merged = _merged_items(held, change, rules, path) if key else _union(held, change)
    if order is None:
        return _ordered(merged, change, held, key)
    named = {_token(item, key) for item in order} if isinstance(order, list) else set()
    for item in change:
        if _token(item, key) not in named and not _is_deletion(item):
            raise _fault(path, f'"{_ORDER}…" must list every item that the patch has')
    return _ordered(merged, order, held, key)


def _merged_items(held: list[Any], change: list[Any], rules: _Rules, path: _Path) -> list[Any]:
    key, items = rules.key, rules.items
    merged: dict[Hashable, Any] = {}
    copies: dict[Hashable, list[Hashable]] = {}
    for index, item in enumerate(held):
        token = _token(item, key)
        # An item that is there twice under one key stays there twice; the first one is merged.
        if token in merged:
            copy = (index, token)
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
            at = (path, _item, (key, item[key]))
            merged[token] = _merged_object(merged.get(token), item, items, at)
    return list(merged.values())


def _item(path: str, key: tuple[str, Any]) -> str:
    """The path of an item by its merge key."""
    name, value = key
    return entry(path, f"{name}={value if isinstance(value, str) else shown(value)}")


_NO_RULES = _Rules({}, Definitions({}), {})


def _plain(value: Any) -> Any:
    """A patch's value as it goes into an atomic list: a copy without directives."""
    return _merge({}, value, _NO_RULES, None) if isinstance(value, dict) else codec.clone(value)


def _retain(target: Document, patch: Document, retained: Any, path: _Path) -> None:
    if not isinstance(retained, list):
        raise _fault(path, f'"{_RETAIN}" must be a list')
    kept = frozenset(name for name in retained if isinstance(name, str))
    for name, change in patch.items():
        if not name.startswith("$") and change is not None and name not in kept:
            raise _fault(path, f'"{_RETAIN}" leaves out {shown(name)}, which the patch sets')
    for name in list(target):
        if name not in kept:
            del target[name]


def _is_deletion(item: Any) -> bool:
    return isinstance(item, dict) and item.get(_PATCH) == "delete"


def _token(item: Any, key: str) -> str | bytes:
    """What identifies an item: the value of its merge key, or the item itself."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return value if isinstance(value, str) else _tokens.encode(value)


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


def _fault(path: _Path, message: str) -> BadRequest:
    return BadRequest(f"strategic merge patch, {_text(path) or 'at the top'}: {message}")


def _text(path: _Path) -> str:
    parts = []
    while path is not None:
        path, show, part = path
        parts.append((show, part))
    text = ""
    for show, part in reversed(parts):
        text = show(text, part)
    return text
