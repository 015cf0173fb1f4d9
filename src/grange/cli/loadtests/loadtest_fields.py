"""Reads the fields of a LoadTest: values of the wrong type are one clear error, unknown ones a note."""

from collections.abc import Iterator, Mapping
from typing import Any

from grange.api.meta import Document
from grange.base.errors import GrangeError


class InvalidLoadTest(GrangeError):
    """A LoadTest cannot be converted; the message begins with the field."""


class LoadTestObject:
    """An object of the manifest whose fields are taken one by one.

    Args:
        value: the object; None for an empty one.
        path: of the field that it stands in.

    Raises:
        InvalidLoadTest: it is no object.

    Attributes:
        path: of the field that it stands in.
    """

    def __init__(self, value: object, path: str) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise _wrong(path, value, "an object")
        self._left: dict[str, Any] = dict(value)
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self._left.get(name) is not None

    def text(self, name: str) -> str:
        """A string; empty where the field is not there."""
        value = self._left.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise _wrong(self._field(name), value, "a string")
        return value or ""

    def number(self, name: str) -> int | None:
        """An integer of at least 1; None where the field is not there."""
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            raise _wrong(self._field(name), value, "a positive integer")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        found = self._list(name)
        for at, item in enumerate(found):
            if not isinstance(item, str):
                raise _wrong(f"{self._field(name)}[{at}]", item, "a string")
        return found

    def strings(self, name: str) -> dict[str, str]:
        """A map of strings."""
        value = self._left.pop(name, None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _wrong(self._field(name), value, "an object")
        for key, item in value.items():
            if not isinstance(item, str):
                raise _wrong(f"{self._field(name)}[{key}]", item, "a string")
        return dict(value)

    def documents(self, name: str) -> list[Document]:
        """A list of objects, or one object that stands for a list of it."""
        value = self._left.get(name)
        if isinstance(value, dict):
            self._left[name] = [value]
        found = self._list(name)
        for at, item in enumerate(found):
            if not isinstance(item, dict):
                raise _wrong(f"{self._field(name)}[{at}]", item, "an object")
        return [dict(item) for item in found]

    def part(self, name: str) -> "LoadTestObject":
        """An object; empty where the field is not there."""
        return LoadTestObject(self._left.pop(name, None), self._field(name))

    def parts(self, name: str) -> "Iterator[LoadTestObject]":
        """The objects of a list."""
        for at, item in enumerate(self._list(name)):
            yield LoadTestObject(item, f"{self._field(name)}[{at}]")

    def rest(self) -> list[str]:
        """Paths of the fields that were not taken."""
        return [self._field(name) for name in self._left]

    def _list(self, name: str) -> list[Any]:
        value = self._left.pop(name, None)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _wrong(self._field(name), value, "a list")
        return value

    def _field(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _wrong(path: str, value: object, wanted: str) -> InvalidLoadTest:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    return InvalidLoadTest(f"{path or 'manifest'}: {shown} is not {wanted}; correct the LoadTest")


def merged_environment(given: list[Document], added: Mapping[str, str]) -> list[Document]:
    """Variables of a container, with those added that it does not define."""
    names = {item.get("name") for item in given}
    return [*given, *({"name": key, "value": added[key]} for key in added if key not in names)]
