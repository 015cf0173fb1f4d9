"""Parameters of a manifest: fields that are set by path, and ``${{ name }}`` in its texts.

A key that begins with ``spec.`` or ``metadata.`` is a path: ``spec.timeouts.runSeconds``,
``spec.clients[0].count``, ``spec.driver.env[SIZE]`` (an item by its name; of a variable, its value).
Any other key is a name; a text that is nothing but ``${{ name }}`` becomes the value with its type,
except in commands, arguments and values of variables, which are always texts.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import msgspec

from grange.api import codec
from grange.api.meta import Document

_TEXTS = frozenset({"command", "args", "value"})
_ROOTS = ("spec.", "metadata.")
_PLACE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\[\]]+)\]")


def parse_pair(text: str) -> tuple[str, str]:
    """Key and text of ``KEY=VALUE``.

    Raises:
        click.UsageError: there is no key.
    """
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise click.UsageError(f"{text}: write KEY=VALUE, for example spec.timeouts.runSeconds=60")
    return key, value


def parse_value(text: str) -> Any:
    """The value that a text stands for: JSON where it is any, else the text itself."""
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


def is_path(key: str) -> bool:
    """Whether the key is the path of a field rather than the name of a parameter."""
    return key.startswith(_ROOTS)


def applied(document: Document, values: Mapping[str, Any]) -> tuple[Document, set[str]]:
    """A copy of the document with the values in it, and the keys that were used.

    Raises:
        click.UsageError: a path leads through something that is no object or list.
    """
    made = codec.clone(document)
    used: set[str] = set()

    def replace(text: str, *, typed: bool) -> Any:
        if typed and (whole := _PLACE.fullmatch(text)) and whole[1] in values:
            used.add(whole[1])
            return values[whole[1]]

        def one(match: re.Match[str]) -> str:
            if match[1] not in values:
                return match[0]
            used.add(match[1])
            return _as_text(values[match[1]])

        return _PLACE.sub(one, text)

    made = _mapped(made, replace)
    for key, value in values.items():
        if is_path(key):
            _set(made, key, value)
            used.add(key)
    return made, used


def missing(document: Document) -> list[str]:
    """Names of the parameters that have no value yet, in the order of the document."""
    return list(dict.fromkeys(name for text in _texts(document) for name in _PLACE.findall(text)))


def _mapped(value: Any, replace: Callable[..., Any], *, typed: bool = True) -> Any:
    if isinstance(value, str):
        return replace(value, typed=typed)
    if isinstance(value, dict):
        return {
            key: _mapped(item, replace, typed=typed and key not in _TEXTS)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_mapped(item, replace, typed=typed) for item in value]
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _set(document: Document, key: str, value: Any) -> None:
    steps = _steps(key)
    holder: Any = document
    for at, step in enumerate(steps[:-1]):
        after = steps[at + 1]
        if isinstance(after, _Item) and after.index is not None:
            _expect_list(holder, step, key)
        holder = _child(holder, step, key, makes_list=isinstance(after, _Item))
    last = steps[-1]
    if isinstance(holder, dict) and isinstance(last, str):
        holder[last] = value
    elif isinstance(holder, list) and isinstance(last, _Item):
        if last.index is not None:
            _at(holder, last.index, key)
            holder[last.index] = value
        else:  # of a variable, which is all that lists by name hold in a session
            _named(holder, last.name)["value"] = _as_text(value)
    else:
        raise _no_way(key)


class _Item(msgspec.Struct, frozen=True):
    """An item of a list: by its index, or by its name."""

    name: str

    @property
    def index(self) -> int | None:
        return int(self.name) if self.name.isdecimal() else None


def _steps(key: str) -> list[str | _Item]:
    steps: list[str | _Item] = []
    position = 0
    while position < len(key):
        found = _STEP.match(key, position)
        if found is None:
            raise _no_way(key)
        steps.append(found[1] if found[1] is not None else _Item(found[2]))
        position = found.end()
    return steps


def _child(holder: Any, step: str | _Item, key: str, *, makes_list: bool) -> Any:
    if isinstance(holder, dict) and isinstance(step, str):
        empty: Any = [] if makes_list else {}
        return holder.setdefault(step, empty)
    if isinstance(holder, list) and isinstance(step, _Item):
        if step.index is None:
            return _named(holder, step.name)
        return _at(holder, step.index, key)
    raise _no_way(key)


def _expect_list(holder: Any, step: str | _Item, key: str) -> None:
    """Refuse an index into a list that the manifest does not have, most often a name that is misspelt."""
    if not isinstance(holder, dict) or not isinstance(step, str) or step in holder:
        return
    path = key[: key.index(f"{step}[") + len(step)]
    lists = ", ".join(sorted(name for name, value in holder.items() if isinstance(value, list)))
    raise click.UsageError(
        f"{key}: the manifest has no list {path}; the lists there: {lists or 'none'}"
    )


def _at(items: list[Any], index: int, key: str) -> Any:
    if index >= len(items):
        raise click.UsageError(f"{key}: the list has {len(items)} items, counted from 0")
    return items[index]


def _named(items: list[Any], name: str) -> Document:
    for item in items:
        if isinstance(item, dict) and item.get("name") == name:
            return item
    made: Document = {"name": name}
    items.append(made)
    return made


def _no_way(key: str) -> click.UsageError:
    return click.UsageError(
        f"{key}: no path of a field; write for example spec.clients[0].count or "
        "spec.driver.env[SIZE]"
    )
