"""Reading a document by path, tolerant of what is not there."""

from collections.abc import Callable
from typing import Any

from grange.api.meta import Document


def lookup(document: Document, path: str) -> Any:
    """The value at a dotted path of plain members, or None when any part is missing."""
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def reader(path: str, default: str = "") -> Callable[[Document], str]:
    """A reader of one field as a selector compares it: text, ``true``/``false``, or the default.

    A field that is absent, null or no plain value reads as the default.
    """
    *parents, last = path.split(".")

    def read(document: Document) -> str:
        value: Any = document
        for part in parents:
            value = value.get(part)
            if not isinstance(value, dict):
                return default
        value = value.get(last)
        if isinstance(value, str):
            return value or default
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, int) else default

    return read


def readers(*paths: str) -> dict[str, Callable[[Document], str]]:
    """Readers by their paths, for ``KindInfo.fields``."""
    return {path: reader(path) for path in paths}


_NAME_MAX = 128
_PATH_MAX = 1_024


def member(path: str, name: str) -> str:
    """The path of a member, as messages show it; what is long is cut, as all paths below repeat it."""
    at = f"{path}.{name}" if path else name
    if len(at) <= _NAME_MAX:
        return at
    return _cut(f"{path}.{_cut(name, _NAME_MAX)}" if path else _cut(name, _NAME_MAX), _PATH_MAX)


def entry(path: str, key: str) -> str:
    """The path of an entry of a map or keyed list, as messages show it; cut as ``member`` does."""
    return _cut(f"{path}[{_cut(key, _NAME_MAX)}]", _PATH_MAX)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
