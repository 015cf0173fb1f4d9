"""A disk that may be full, as a wrapper around any store."""

from collections.abc import Callable, Sequence

from grange.base.rng import Stream
from grange.sim.trouble import Trouble
from grange.store.errors import RevisionMismatch, StorageFull, WriteDeclined
from grange.store.interface import Entry, Page, Store, Subscription, Write


class WeakDisk:
    """A store whose disk refuses writes while it is full, or now and then.

    Args:
        inner: the store behind it; closed with this one.
        rng: what the refusals are drawn from.
        trouble: reported while writes are refused.
    """

    def __init__(self, inner: Store, *, rng: Stream, trouble: Trouble | None = None) -> None:
        self._full = False
        self._refuse = 0.0
        self._inner = inner
        self._rng = rng
        self._trouble = trouble

    @property
    def full(self) -> bool:
        """Whether every write is refused."""
        return self._full

    @full.setter
    def full(self, full: bool) -> None:
        self._full = full
        self._note("full disk", broken=full)

    @property
    def refuse(self) -> float:
        """Chance that a write is refused though the disk is not full."""
        return self._refuse

    @refuse.setter
    def refuse(self, chance: float) -> None:
        self._refuse = chance
        self._note("weak disk", broken=chance > 0.0)

    def _note(self, what: str, *, broken: bool) -> None:
        if self._trouble is not None and broken:
            self._trouble.begin(what)
        elif self._trouble is not None:
            self._trouble.end(what)

    @property
    def revision(self) -> int:
        """See ``Store``."""
        return self._inner.revision

    @property
    def compacted(self) -> int:
        """See ``Store``."""
        return self._inner.compacted

    @property
    def setbacks(self) -> int:
        """See ``Store``."""
        return self._inner.setbacks

    def get(self, key: str) -> Entry | None:
        """See ``Store``."""
        return self._inner.get(key)

    def latest(self, key: str) -> Entry | None:
        """See ``Store``."""
        return self._inner.latest(key)

    async def list(
        self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0
    ) -> Page:
        """See ``Store``."""
        return await self._inner.list(prefix, revision=revision, after=after, limit=limit)

    async def put(
        self, key: str, value: Callable[[int], bytes], *, expect: int | None = None
    ) -> Entry:
        """See ``Store``; raises ``StorageFull`` before anything is accepted."""
        self._check()
        return await self._inner.put(key, value, expect=expect)

    async def put_group(
        self, writes: Sequence[Write]
    ) -> Sequence[Entry | RevisionMismatch | WriteDeclined]:
        """See ``Store``; raises ``StorageFull`` before anything is accepted."""
        self._check()
        return await self._inner.put_group(writes)

    async def delete(
        self,
        key: str,
        *,
        value: Callable[[int], bytes] | None = None,
        expect: int | None = None,
    ) -> Entry:
        """See ``Store``; raises ``StorageFull`` before anything is accepted."""
        self._check()
        return await self._inner.delete(key, value=value, expect=expect)

    def watch(self, prefix: str, *, after: int) -> Subscription:
        """See ``Store``."""
        return self._inner.watch(prefix, after=after)

    async def compact(self, revision: int) -> None:
        """See ``Store``."""
        await self._inner.compact(revision)

    async def close(self) -> None:
        """See ``Store``."""
        await self._inner.close()

    def _check(self) -> None:
        if self.full or (self.refuse > 0.0 and self._rng.uniform(0.0, 1.0) < self.refuse):
            raise StorageFull("the disk is full")
