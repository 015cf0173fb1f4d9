"""Reading the ``providerConfig`` of a pool, with errors that name the field."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from grange.machines.providers.provider import MisconfiguredError


class ConfigReader:
    """One object of a configuration.

    Args:
        given: the object.
        path: of the object, for messages.
        known: its fields; others are refused.

    Raises:
        MisconfiguredError: it is no object or has other fields.
    """

    def __init__(
        self, given: object, known: frozenset[str], path: str = "spec.providerConfig"
    ) -> None:
        if not isinstance(given, Mapping):
            raise MisconfiguredError(f"{path}: is no object; use an object")
        unknown = sorted(str(key) for key in given if key not in known)
        if unknown:
            raise MisconfiguredError(f"{path}.{unknown[0]}: unknown field; remove it")
        self._given: Mapping[str, Any] = given
        self._path = path

    def text(self, field: str, default: str | None = None) -> str:
        """A string; required where there is no default.

        Raises:
            MisconfiguredError: it is missing or no string.
        """
        value = self._given.get(field, default)
        if value is None:
            raise self.wrong(field, "is missing", "add it")
        if not isinstance(value, str):
            raise self.wrong(field, "is no string", "use a string")
        return value

    def choice(self, field: str, options: tuple[str, ...]) -> str:
        """One of the options, the first by default.

        Raises:
            MisconfiguredError: it is another.
        """
        value = self.text(field, options[0])
        if value not in options:
            raise self.wrong(field, f"is {value!r}", f"use one of {', '.join(options)}")
        return value

    def number(self, field: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds.

        Raises:
            MisconfiguredError: it is none.
        """
        value = self._given.get(field, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(field, "is no such number", f"use one from {least} to {most}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of strings, empty by default.

        Raises:
            MisconfiguredError: it is none.
        """
        value = self._given.get(field, [])
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise self.wrong(field, "is no list of strings", "use a list of strings")
        return tuple(value)

    def objects(self, field: str) -> tuple[Mapping[str, Any], ...]:
        """A list of objects, empty by default; their fields are not read here.

        Raises:
            MisconfiguredError: it is none.
        """
        value = self._given.get(field, [])
        if not isinstance(value, list | tuple) or not all(isinstance(o, Mapping) for o in value):
            raise self.wrong(field, "is no list of objects", "use a list of objects")
        return tuple(value)

    def strings(self, field: str) -> dict[str, str]:
        """An object of strings, empty by default.

        Raises:
            MisconfiguredError: it is none.
        """
        value = self._given.get(field, {})
        if not isinstance(value, Mapping):
            raise self.wrong(field, "is no object", "use an object")
        for key, one in value.items():
            if not isinstance(one, str):
                raise self.wrong(f"{field}.{key}", "is no string", "use a string")
        return dict(value)

    def values(self, field: str) -> dict[str, Any]:
        """An object of any values, empty by default; they are not read here.

        Raises:
            MisconfiguredError: it is none.
        """
        value = self._given.get(field, {})
        if not isinstance(value, Mapping):
            raise self.wrong(field, "is no object", "use an object")
        return dict(value)

    def flag(self, field: str) -> bool:
        """True or false, false by default.

        Raises:
            MisconfiguredError: it is neither.
        """
        value = self._given.get(field, False)
        if not isinstance(value, bool):
            raise self.wrong(field, "is neither true nor false", "use one of them")
        return value

    def table(self, field: str) -> dict[str, Mapping[str, Any]]:
        """An object of objects, empty by default; their fields are not read here.

        Raises:
            MisconfiguredError: it is none.
        """
        value = self._given.get(field, {})
        if not isinstance(value, Mapping) or not all(
            isinstance(o, Mapping) for o in value.values()
        ):
            raise self.wrong(field, "is no object of objects", "use an object of objects")
        return dict(value)

    def price(self, field: str) -> Decimal:
        """An amount per hour, 0 by default.

        Raises:
            MisconfiguredError: it is no decimal of at least 0.
        """
        return self._price(field, self._given.get(field, "0"))

    def prices(self, field: str) -> dict[str, Decimal]:
        """An object of amounts per hour, empty by default.

        Raises:
            MisconfiguredError: it is none, or an amount is no decimal of at least 0.
        """
        return {
            key: self._price(f"{field}.{key}", text) for key, text in self.strings(field).items()
        }

    def _price(self, path: str, value: object) -> Decimal:
        try:
            price = Decimal(str(value))
        except InvalidOperation:
            price = Decimal(-1)
        if not (price.is_finite() and price >= 0):
            raise self.wrong(path, "is no price", 'use a decimal, e.g. "0.05"')
        return price

    def wrong(self, field: str, what: str, remedy: str) -> MisconfiguredError:
        """The error about a field."""
        return MisconfiguredError(f"{self._path}.{field}: {what}; {remedy}")
