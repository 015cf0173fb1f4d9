"""The newest version of objects that is known: the cache's, or what our last write returned."""

from typing import Generic, TypeVar

from grange.api.meta import ObjectKey, Resource
from grange.reconcile.informer import Informer

R = TypeVar("R", bound=Resource)


class LatestViews(Generic[R]):
    """A cache that does not go back behind our own writes.

    Versions are compared as numbers; where they are not, the cache is right.

    Args:
        informer: the cache.
    """

    def __init__(self, informer: Informer[R]) -> None:
        self._informer = informer
        self._written: dict[ObjectKey, R] = {}

    def wrote(self, obj: R) -> None:
        """The server made this of our write."""
        self._written[obj.key] = obj

    def get(self, key: ObjectKey) -> R | None:
        """The object of this key; None where the cache has none."""
        cached = self._informer.store.get(key)
        written = self._written.get(key)
        if written is None or cached is None:
            self._written.pop(key, None)
            return cached
        ours, theirs = written.metadata.resource_version, cached.metadata.resource_version
        if ours.isdecimal() and theirs.isdecimal() and int(ours) > int(theirs):
            return written
        del self._written[key]
        return cached
