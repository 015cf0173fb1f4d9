"""The graph of owners: objects by uid and their dependents, kept up from the informers.

The graph may lag behind the server. It selects what to look at; it is believed when it shows that an
owner exists (an error is corrected by the owner's deletion event), never when it shows that one does
not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from grange.api.meta import ObjectKey, OwnerReference, Resource
from grange.api.scheme import AnyKind

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """What the graph knows about one object.

    Attributes:
        kind: its kind.
        key: namespace and name.
        uid: its identity.
        owners: its owner references.
        deleting: it is on its way out.
        finalizers: what holds it.
    """

    kind: AnyKind
    key: ObjectKey
    uid: str
    owners: tuple[OwnerReference, ...] = ()
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: AnyKind, obj: Resource) -> "GraphNode":
        """The entry of an object."""
        meta = obj.metadata
        return cls(
            kind,
            obj.key,
            meta.uid,
            tuple(meta.owner_references),
            bool(meta.deletion_timestamp),
            tuple(meta.finalizers),
        )

    @property
    def waits_for_dependents(self) -> bool:
        """It is deleted in the foreground: dependents that block go first."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """It is deleted, and its dependents shall stay."""
        return self.deleting and ORPHAN in self.finalizers

    def __str__(self) -> str:
        return f"{self.kind.qualified} {self.key}"


def names(owner: OwnerReference, found: GraphNode, dependent: GraphNode) -> bool:
    """Whether a dependent's reference really names the object that has its uid.

    Group, kind and name must be the object's, and a namespaced owner must be of the same namespace.
    """
    referenced = (owner.api_version.rpartition("/")[0], owner.kind, owner.name)
    if referenced != (found.kind.group, found.kind.kind, found.key.name):
        return False
    return not found.kind.namespaced or found.key.namespace == dependent.key.namespace


class Graph:
    """Entries by uid, and dependents by the uid of an owner; in order of arrival."""

    def __init__(self) -> None:
        self._entries: dict[str, GraphNode] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(list(self._entries.values()))

    def get(self, uid: str) -> GraphNode | None:
        """The object of this uid, if it has been seen and not gone."""
        return self._entries.get(uid)

    def dependents(self, uid: str) -> list[GraphNode]:
        """The objects that name this uid as an owner, whether it exists or not."""
        return [self._entries[dependent] for dependent in self._dependents.get(uid, ())]

    def blockers(self, uid: str) -> list[GraphNode]:
        """The dependents that hold back the foreground deletion of their owner."""
        return [
            entry
            for entry in self.dependents(uid)
            if any(owner.uid == uid and owner.block_owner_deletion for owner in entry.owners)
        ]

    def outer_blockers(self, uid: str) -> list[GraphNode]:
        """The blockers that do not wait, directly or through others, for this object themselves.

        Objects that are deleted in the foreground and block one another would never go; an
        object may also name itself as its owner. Within such a cycle no object blocks.
        """
        waiting: dict[str, None] = {}
        behind = [uid]
        while behind:
            entry = self._entries.get(behind.pop())
            for owner in entry.owners if entry is not None else ():
                held = owner.block_owner_deletion and self._is_waiting(owner.uid)
                if held and owner.uid not in waiting:
                    waiting[owner.uid] = None
                    behind.append(owner.uid)
        return [entry for entry in self.blockers(uid) if entry.uid not in waiting]

    def put(self, entry: GraphNode) -> list[str]:
        """An object appeared or changed: the uids to look at because of it."""
        old = self._entries.get(entry.uid)
        self._entries[entry.uid] = entry
        before = {owner.uid: owner for owner in old.owners} if old else {}
        after = {owner.uid: owner for owner in entry.owners}
        for uid in before.keys() - after.keys():
            self._forget_dependent(uid, entry.uid)
        for uid in after:
            self._dependents.setdefault(uid, {})[entry.uid] = None
        look: list[str] = []
        if (
            entry.waits_for_dependents
            or entry.orphans_dependents
            or (before != after and any(self._is_suspect(owner, entry) for owner in entry.owners))
        ):
            look.append(entry.uid)
        # An owner that waits for its dependents has one less to wait for, or one it did not know.
        look += [
            uid
            for uid in {**before, **after}
            if before.get(uid) != after.get(uid) and self._is_waiting(uid)
        ]
        return look

    def remove(self, uid: str) -> list[str]:
        """An object is gone: the uids to look at because of it."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return []
        for owner in entry.owners:
            self._forget_dependent(owner.uid, uid)
        waiting = [owner.uid for owner in entry.owners if self._is_waiting(owner.uid)]
        return [*self._dependents.get(uid, ()), *waiting]

    def suspects(self) -> list[str]:
        """Everything that needs a look after the first full state of the informers."""
        return [
            entry.uid
            for entry in self
            if entry.waits_for_dependents
            or entry.orphans_dependents
            or any(self._is_suspect(owner, entry) for owner in entry.owners)
        ]

    def _is_suspect(self, owner: OwnerReference, dependent: GraphNode) -> bool:
        found = self._entries.get(owner.uid)
        return found is None or found.waits_for_dependents or not names(owner, found, dependent)

    def _is_waiting(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.waits_for_dependents

    def _forget_dependent(self, owner: str, dependent: str) -> None:
        there = self._dependents.get(owner)
        if there is not None:
            there.pop(dependent, None)
            if not there:
                del self._dependents[owner]
