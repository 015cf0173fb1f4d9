"""What the store holds in memory: acknowledged entries, and accepted changes on top of them.

The one idea: a compare-and-swap is decided against the accepted state, reads show only the
acknowledged one. A change moves from one to the other when its commit is on disk; if the disk
refuses, dropping the upper layer is an exact rollback, because nothing below it was touched.
"""

from collections.abc import Callable, Mapping
from heapq import merge
from itertools import islice

from grange.store.change import StoreChange
from grange.store.errors import RevisionMismatch
from grange.store.interface import Entry, Page, check_key
from grange.store.keyindex import KeyIndex


class StoreState:
    """The two layers; synchronous, knows no disk and no watcher.

    Args:
        entries: the acknowledged entries by key; taken over, not copied.
        revision: the last acknowledged revision.
    """

    def __init__(self, entries: dict[str, Entry], revision: int) -> None:
        self._entries = entries
        self._index = KeyIndex(entries)
        self._pending: dict[str, StoreChange] = {}  # the last accepted change of a key
        self._accepted = revision
        self.revision = revision

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Entry | None:
        """The acknowledged entry."""
        return self._entries.get(key)

    def latest(self, key: str) -> Entry | None:
        """The accepted entry."""
        change = self._pending.get(key)
        if change is None:
            return self._entries.get(key)
        return None if change.deleted else change.entry

    def put(self, key: str, value: Callable[[int], bytes], expect: int | None) -> StoreChange:
        """Accept a write.

        Raises:
            RevisionMismatch: ``expect`` does not hold.
            ValueError: this cannot be a key.
        """
        before = self.latest(key)
        if before is None:
            check_key(key)
            actual = 0
        else:
            actual = before.revision
        if expect is not None and expect != actual:
            raise RevisionMismatch(key, expected=expect, actual=actual)
        revision = self._accepted + 1
        body = value(revision)
        created = revision if before is None else before.created
        change = StoreChange(Entry(key, body, revision, created), before, deleted=False)
        self._accepted = revision
        self._pending[key] = change
        return change

    def delete(
        self, key: str, value: Callable[[int], bytes] | None, expect: int | None
    ) -> StoreChange:
        """Accept a deletion.

        Raises:
            RevisionMismatch: the key is absent, or ``expect`` does not hold.
        """
        before = self.latest(key)
        if before is None:
            raise RevisionMismatch(key, expected=expect or 0, actual=0)
        if expect is not None and expect != before.revision:
            raise RevisionMismatch(key, expected=expect, actual=before.revision)
        revision = self._accepted + 1
        body = before.value if value is None else value(revision)
        change = StoreChange(Entry(key, body, revision, before.created), before, deleted=True)
        self._accepted = revision
        self._pending[key] = change
        return change

    def acknowledge(self, change: StoreChange) -> None:
        """Show an accepted change; changes are acknowledged in the order of their revisions."""
        entry = change.entry
        key = entry.key
        if change.deleted:
            del self._entries[key]
            self._index.remove(key)
        else:
            if change.before is None:
                self._index.add(key)
            self._entries[key] = entry
        if self._pending.get(key) is change:
            del self._pending[key]
        self.revision = entry.revision

    def rollback(self) -> None:
        """Forget every accepted change; their revisions are not used again."""
        self._pending.clear()

    def page(self, prefix: str, after: str, limit: int) -> Page:
        """The acknowledged entries."""
        keys = self._index.under(prefix, after)
        entries = [self._entries[key] for key in (islice(keys, limit) if limit else keys)]
        remaining = self._index.count(prefix, after) - len(entries) if limit else 0
        return Page(entries, self.revision, remaining)

    def page_at(
        self, revision: int, then: Mapping[str, Entry | None], prefix: str, after: str, limit: int
    ) -> Page:
        """The entries at an earlier revision.

        The cost is that of the page and of ``then``, whatever the number of keys, so that a large
        list can be read in small pages while writes go on.

        Args:
            revision: the state to show.
            then: what each key under the prefix that changed since was at that revision.
            prefix: the common start of the keys.
            after: only keys greater than this one.
            limit: at most so many entries; 0 is all.
        """
        restored = {key: entry for key, entry in then.items() if entry is not None and key > after}
        gone = sum(1 for key in then if key > after and key in self._entries)
        unchanged = (key for key in self._index.under(prefix, after) if key not in then)
        keys = merge(unchanged, sorted(restored))
        entries = [
            restored.get(key) or self._entries[key]
            for key in (islice(keys, limit) if limit else keys)
        ]
        total = self._index.count(prefix, after) - gone + len(restored)
        return Page(entries, revision, total - len(entries))
