"""Whether the cache has the last write of an object.

A reconcile that starts from an older version repeats decisions, and its status write conflicts.
Versions are compared as numbers, which Kubernetes promises since 1.35 (KEP-5504) and our server has
always done; where they are not, nothing is waited for.
"""

from msgspec import structs

from grange.api.meta import Resource
from grange.base.clock import Clock

_PATIENCE_S = 5.0


class WriteTracker:
    """Remembers, by uid, the version that we wrote last.

    Args:
        clock: for patience; a watch may be slow, but must not stop a controller for good.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[str, tuple[int, float]] = {}
        self._waiting: set[str] = set()

    def wrote(self, obj: Resource) -> None:
        """This is what the server made of our write."""
        version = obj.metadata.resource_version
        if version.isdecimal():
            due = self._clock.monotonic() + _PATIENCE_S
            self._written[obj.metadata.uid] = (int(version), due)

    def remaining_s(self, cached: Resource) -> float:
        """Seconds to wait for the echo of our last write; zero if the cache has it, or is too slow.

        Args:
            cached: the object as the cache has it.
        """
        found = self._written.get(cached.metadata.uid)
        if found is None:
            return 0.0
        version, due = found
        seen = cached.metadata.resource_version
        left = due - self._clock.monotonic()
        if not seen.isdecimal() or int(seen) >= version or left <= 0:
            del self._written[cached.metadata.uid]
            self._waiting.discard(cached.metadata.uid)
            return 0.0
        self._waiting.add(cached.metadata.uid)
        return left

    def awaited(self, uid: str) -> bool:
        """Whether a pass waits for an echo, so that news of the status alone is worth a look."""
        return uid in self._waiting

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._written.pop(uid, None)
        self._waiting.discard(uid)


def is_only_annotated(old: Resource, new: Resource, annotation: str) -> bool:
    """Whether an object differs in nothing but one annotation that only makes a new version.

    A write that names an earlier version fails from then on, however late it arrives (ADR 10). The
    annotation is our own write, of a reconcile that may have failed since: it must not cause the next
    one before its backoff has passed.
    """
    before, after = old.metadata, new.metadata
    if before.annotations.get(annotation) == after.annotations.get(annotation):
        return False
    blank = {annotation: ""}
    if {**before.annotations, **blank} != {**after.annotations, **blank}:
        return False
    version = before.resource_version
    same = structs.replace(after, annotations=before.annotations, resource_version=version)
    return structs.replace(new, metadata=same) == old
