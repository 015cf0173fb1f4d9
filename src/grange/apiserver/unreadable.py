"""Objects in the store that cannot be read: left out of lists and watches, counted and logged once.

The server writes what it has checked, so such bytes were stored by another program, by an earlier
version with another schema, or damaged. One of them must not fail the list that it would be part of.
"""

from collections.abc import Iterable

import msgspec

from grange.api.scheme import AnyKind
from grange.api.status import InternalError
from grange.apiserver import storage
from grange.base.supervision import SkippedObjects
from grange.store.interface import Entry, Store

_PAGE = 500  # keys a step; the server does not serve yet


class _Meta(msgspec.Struct):
    name: str


class _Envelope(msgspec.Struct):
    metadata: _Meta


_envelopes = msgspec.json.Decoder(_Envelope)


class UnreadableObjects:
    """Which values in the store are no objects at all; they are left out of everything.

    Args:
        skipped: where each of their versions is counted and logged once.
    """

    def __init__(self, skipped: SkippedObjects) -> None:
        self._skipped = skipped
        self._values: dict[str, bytes] = {}  # by key

    def __len__(self) -> int:
        """How many are known."""
        return len(self._values)

    async def find(self, store: Store, kinds: Iterable[AnyKind]) -> None:
        """Look through the store once, before anything is served.

        Raises:
            StoreError: the store cannot be read.
        """
        for info in kinds:
            after, remaining = "", 1
            while remaining:
                page = await store.list(storage.prefix(info), after=after, limit=_PAGE)
                for entry in page.entries:
                    try:
                        _envelopes.decode(entry.value)
                        entry.value.decode()  # what the decoder passes over may be no text
                    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                        self._values[entry.key] = entry.value
                        self.skip(entry, error)
                after, remaining = page.entries[-1].key if page.entries else "", page.remaining

    def skip(self, entry: Entry, error: Exception) -> None:
        """Count and log an object that is left out of one answer because of its shape."""
        self._skipped.skip(entry.key, entry.revision, error)

    def holds(self, key: str, value: bytes) -> bool:
        """Whether this value of a key is no object."""
        return bool(self._values) and self._values.get(key) == value

    def readable(self, entries: list[Entry]) -> list[Entry]:
        """The entries without those that are left out."""
        if not self._values:
            return entries
        return [entry for entry in entries if not self.holds(entry.key, entry.value)]

    def check(self, info: AnyKind, entry: Entry) -> None:
        """Refuse a value that is no object.

        Raises:
            InternalError: it is.
        """
        if self.holds(entry.key, entry.value):
            name = storage.names_of(entry.key, info)[1]
            raise InternalError(
                f'{info.qualified} "{name}" cannot be read from the store: its bytes are no '
                f"{info.kind}, see the log of the server; to remove it, delete it with "
                "ignoreStoreReadErrorWithClusterBreakingPotential=true"
            )
