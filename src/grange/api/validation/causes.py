"""Faults in fields, worded as Kubernetes words them, gathered rather than raised one by one."""

from collections.abc import Iterable

from grange.api.status import Cause, shown

# A document can have a fault in each of a hundred thousand places; more than this is not reported.
CAUSES_MAX = 100


class Faults:
    """A growing list of causes, up to ``CAUSES_MAX``: an author wants all faults of an object."""

    __slots__ = ("causes",)

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    def required(self, path: str, message: str = "") -> None:
        """The field must be there."""
        self._add(
            "FieldValueRequired", path, "Required value" + (f": {message}" if message else "")
        )

    def invalid(self, path: str, value: object, message: str) -> None:
        """The field's value breaks a rule; the message describes a valid value."""
        if self._has_room:
            self._add("FieldValueInvalid", path, f"Invalid value: {shown(value)}: {message}")

    def not_supported(self, path: str, value: object, choices: Iterable[str]) -> None:
        """The field's value is none of the choices."""
        if not self._has_room:
            return
        listed = ", ".join(f'"{choice}"' for choice in choices)
        message = f"Unsupported value: {shown(value)}: supported values: {listed}"
        self._add("FieldValueNotSupported", path, message)

    def duplicate(self, path: str, value: object) -> None:
        """The value must be the only one of its kind in the list."""
        if self._has_room:
            self._add("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")

    def not_found(self, path: str, value: object) -> None:
        """The value names something that is not there."""
        if self._has_room:
            self._add("FieldValueNotFound", path, f"Not found: {shown(value)}")

    def forbidden(self, path: str, message: str) -> None:
        """The field may not be set, or not changed, here."""
        self._add("FieldValueForbidden", path, f"Forbidden: {message}")

    def too_long(self, path: str, message: str) -> None:
        """The field holds too much."""
        self._add("FieldValueTooLong", path, f"Too long: {message}")

    def named(self, path: str, value: str, fault: str | None) -> None:
        """Record what a check of ``api.names`` found, if anything."""
        if fault is not None and self._has_room:
            self._add("FieldValueInvalid", path, f"Invalid value: {shown(value)}: {fault}")

    @property
    def _has_room(self) -> bool:
        """Whether one more cause is kept; writing what is not kept would cost most of the time."""
        return len(self.causes) < CAUSES_MAX

    def _add(self, reason: str, path: str, message: str) -> None:
        if self._has_room:
            self.causes.append(Cause(reason=reason, message=message, field=path))
