"""The index of roles and bindings, current with every write that the store has acknowledged."""

from collections.abc import Callable

import msgspec

from grange.api.kinds import CLUSTERROLE, CLUSTERROLEBINDING, ROLE, ROLEBINDING
from grange.api.scheme import AnyKind
from grange.apiserver import storage
from grange.apiserver.authorization.role_index import (
    RoleIndex,
    RoleName,
    StoredBinding,
    StoredRole,
)
from grange.base.supervision import SkippedObjects
from grange.store.errors import Compacted
from grange.store.interface import Store, Subscription

_ROLES, _BINDINGS = (ROLE, CLUSTERROLE), (ROLEBINDING, CLUSTERROLEBINDING)
_PREFIX = f"/{ROLE.group}/"
_role = msgspec.json.Decoder(StoredRole)
_binding = msgspec.json.Decoder(StoredBinding)


class StoredRoles:
    """Reads roles and bindings from a store; what cannot be read gives no rights.

    Args:
        store: where they are.
        skipped: where those that cannot be read are counted and logged.
    """

    def __init__(self, store: Store, skipped: SkippedObjects) -> None:
        self._store = store
        self._skipped = skipped
        self._index = RoleIndex()
        self._changes: Subscription | None = None
        self._setters: tuple[tuple[str, AnyKind, Callable[[bytes], None]], ...] = (
            *((storage.prefix(info), info, self._set_role) for info in _ROLES),
            *((storage.prefix(info), info, self._set_binding) for info in _BINDINGS),
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the index shows the store; otherwise it gives no rights."""
        return self._changes is not None

    async def load(self) -> None:
        """Read everything.

        Raises:
            StoreError: the store cannot be read.
        """
        page = await self._store.list(_PREFIX)
        self.close()
        self._index = RoleIndex()
        for entry in page.entries:
            self._apply(entry.key, entry.revision, entry.value)
        self._changes = self._store.watch(_PREFIX, after=page.revision)

    def current(self) -> RoleIndex:
        """The index, with all that is acknowledged; empty while it is not loaded."""
        if self._changes is None:
            return self._index
        try:
            events = self._changes.take_unread()
        except Compacted:
            self.close()
            return self._index
        for event in events:
            self._apply(event.key, event.revision, None if event.deleted else event.value)
        return self._index

    def close(self) -> None:
        """Stop following the store; idempotent."""
        if self._changes is not None:
            self._changes.close()
        self._changes = None
        self._index = RoleIndex()

    def _apply(self, key: str, revision: int, value: bytes | None) -> None:
        for prefix, info, setter in self._setters:
            if not key.startswith(prefix):
                continue
            name = RoleName(*storage.names_of(key, info))
            remove = self._index.remove_role if info in _ROLES else self._index.remove_binding
            if value is None:
                remove(name)
                return
            try:
                setter(value)
            except msgspec.MsgspecError as error:
                remove(name)
                self._skipped.skip(key, revision, error)

    def _set_role(self, value: bytes) -> None:
        self._index.set_role(_role.decode(value))

    def _set_binding(self, value: bytes) -> None:
        self._index.set_binding(_binding.decode(value))
