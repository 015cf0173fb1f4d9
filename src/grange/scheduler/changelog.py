"""A log that readers follow at their own pace: what changed since they last looked."""

from typing import Generic, TypeVar

T = TypeVar("T")

_KEPT = 8192


class ChangeLog(Generic[T]):
    """What changed, the newest last. It forgets its older half when it grows too long.

    Attributes:
        position: after the newest entry; what a reader remembers.
    """

    __slots__ = ("_entries", "position")

    def __init__(self) -> None:
        self._entries: list[T] = []
        self.position = 0

    def note(self, item: T) -> None:
        """This changed."""
        self._entries.append(item)
        self.position += 1
        if len(self._entries) > _KEPT:
            del self._entries[: _KEPT // 2]

    def since(self, position: int) -> list[T] | None:
        """What changed after a position; None when that is forgotten."""
        count = self.position - position
        if not count:
            return []
        return self._entries[-count:] if 0 < count <= len(self._entries) else None

    def forget(self) -> None:
        """Anything may have changed: every reader starts anew."""
        self._entries.clear()
        self.position += 1
