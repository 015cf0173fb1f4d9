"""What the store can refuse.

::

    GrangeError
    └── StoreError
        ├── RevisionMismatch   read the key again and decide again
        ├── Refused            by the write's own value, with a reason
        ├── Compacted          list again; the history asked for is gone
        ├── FutureRevision     the caller is ahead of this store: wait, or list again after a restore
        ├── StoreClosed        stop
        ├── StorageFull        nothing was written; free space, then try again
        ├── StoreBusy          another process has the directory; the message names it
        └── StoreCorrupt       restore a copy; the message names the file
            └── StoreTooNew    written by a newer Grange; upgrade
"""

from grange.base.errors import GrangeError


class StoreError(GrangeError):
    """Base of the store's errors."""


class RevisionMismatch(StoreError):
    """The key's revision is not the expected one.

    Args:
        key: the key.
        expected: the revision the caller expected; 0 means "absent".
        actual: the key's revision; 0 means "absent".
    """

    def __init__(self, key: str, *, expected: int, actual: int) -> None:
        found = f"revision {actual}" if actual else "nothing"
        wanted = f"revision {expected}" if expected else "any revision" if not actual else "nothing"
        super().__init__(f"{key}: expected {wanted}, found {found}")
        self.key = key
        self.expected = expected
        self.actual = actual


class WriteDeclined(StoreError):
    """Raised by a value, at acceptance, to decline its own write; the message has the reason."""


class Compacted(StoreError):
    """The revision is before the compaction mark, or the watcher fell too far behind."""


class FutureRevision(StoreError):
    """The revision has not happened yet."""


class StoreClosed(StoreError):
    """The store is closed or failed, as the message states."""


class StorageFull(StoreError):
    """The disk refused the write; nothing of it is kept."""


class StoreBusy(StoreError):
    """Another process has the store open."""


class StoreCorrupt(StoreError):
    """The database is not readable as one of ours."""


class StoreTooNew(StoreCorrupt):
    """The database was written by a newer version."""
