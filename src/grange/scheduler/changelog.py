"""A log that readers follow at their own pace: what changed since they last looked."""

from typing import Generic, TypeVar

T = TypeVar("T")

_LIMIT = 8192


class ChangeLog(Generic[T]):
    """What changed, the newest last. It drops its older half when it grows too long.

    A reader remembers a position, and starts from scratch when it fell behind.

    Attributes:
        position: after the newest entry; what a reader remembers.
    """

    __slots__ = ("_entries", "limit", "position")

    def __init__(self, limit: int = _LIMIT) -> None:
        self._entries: list[T] = []
        self.position = 0
        self.limit = limit

    def note(self, item: T) -> None:
        """Add an entry."""
        self._entries.append(item)
        self.position += 1
        if len(self._entries) > self.limit:
            self._trim()

    def since(self, position: int) -> list[T] | None:
        """The entries after a position; None when they are dropped."""
        count = self.position - position
        if not count:
            return []
        return self._entries[-count:] if 0 < count <= len(self._entries) else None

    def forget(self) -> None:
        """Anything may have changed: every reader starts from scratch."""
        self._entries.clear()
        self.position += 1

    def _trim(self) -> None:
        del self._entries[: len(self._entries) - self.limit // 2]
