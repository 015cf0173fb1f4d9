"""The informer's store: objects by key, and by whatever else is asked for often."""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

from grange.api.meta import ObjectKey, Resource

R = TypeVar("R", bound=Resource)

Items: TypeAlias = list[R]  # inside the class, ``list`` is the method
_NAMESPACE = "namespace"


class Indexer(Generic[R]):
    """Objects in the order of their insertion; written by the informer, read by everybody.

    Lists are copies: a reader may keep one while the store changes. An object that an index cannot
    read has no values there; everything else knows it.

    Args:
        failed: called with an object and the error of an index that cannot read it.
    """

    def __init__(
        self, failed: Callable[[R, Exception], object] = lambda _obj, _error: None
    ) -> None:
        self._failed = failed
        self._items: dict[ObjectKey, R] = {}
        self._functions: dict[str, Callable[[R], Iterable[str]]] = {}
        self._buckets: dict[str, dict[str, dict[ObjectKey, None]]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[R]:
        """The objects, without a copy: do not await while iterating."""
        return iter(self._items.values())

    def get(self, key: ObjectKey) -> R | None:
        """The object of this key."""
        return self._items.get(key)

    def list(self, namespace: str | None = None) -> Items[R]:
        """All objects, or those of one namespace."""
        if namespace is None:
            return [*self._items.values()]
        if _NAMESPACE not in self._functions:  # made on first use: many stores are never asked
            self.add_index(_NAMESPACE, lambda obj: (obj.metadata.namespace,))
        return self.by_index(_NAMESPACE, namespace)

    def add_index(self, name: str, function: Callable[[R], Iterable[str]]) -> None:
        """Keep objects by further values; indexes what is there already.

        The function must be pure. Adding an index of a known name again
        changes nothing, so that several users may ask for it.
        """
        if name in self._functions:
            return
        self._functions[name] = function
        buckets: dict[str, dict[ObjectKey, None]] = {}
        self._buckets[name] = buckets
        for key, obj in self._items.items():
            for value in self._values(function, obj):
                buckets.setdefault(value, {})[key] = None

    def by_index(self, name: str, value: str) -> Items[R]:
        """The objects that have this value in an index, in the order they got it.

        Raises:
            KeyError: there is no such index.
        """
        items = self._items
        return [items[key] for key in self._buckets[name].get(value, ())]

    def put(self, key: ObjectKey, obj: R, old: R | None) -> None:
        """Store an object in the place of ``old``, which is what is there; for the informer only."""
        self._items[key] = obj
        for name, function in self._functions.items():
            before = self._values(function, old) if old is not None else ()
            after = self._values(function, obj)
            if before != after:
                self._move(name, key, before, after)

    def remove(self, key: ObjectKey) -> R | None:
        """Drop an object and return it; for the informer only."""
        old = self._items.pop(key, None)
        if old is not None:
            for name, function in self._functions.items():
                self._move(name, key, self._values(function, old), ())
        return old

    def _values(self, function: Callable[[R], Iterable[str]], obj: R) -> tuple[str, ...]:
        try:
            return tuple(function(obj))
        except Exception as error:  # noqa: BLE001  one object must not end the informer
            self._failed(obj, error)
            return ()

    def _move(
        self, name: str, key: ObjectKey, before: tuple[str, ...], after: tuple[str, ...]
    ) -> None:
        buckets = self._buckets[name]
        for value in before:
            if value not in after and (bucket := buckets.get(value)) is not None:
                bucket.pop(key, None)
                if not bucket:
                    del buckets[value]
        for value in after:
            buckets.setdefault(value, {})[key] = None
