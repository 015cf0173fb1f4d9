"""Handlers for the objects that a controller owns: tick off expectations, wake the owner.

The rules of the field (spec of job controllers), with its known gaps closed: owners are matched by
UID, orphans enqueue the owners that might adopt them, and an object on its way out counts as deleted at once
and only once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from grange.api.meta import ObjectKey, ObjectMeta, OwnerReference, Resource, controller_of
from grange.api.scheme import AnyKind
from grange.base.log import Logger
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.informer import Informer

R = TypeVar("R", bound=Resource)
O = TypeVar("O", bound=Resource)  # noqa: E741  the owner's kind


@dataclass(frozen=True, slots=True)
class DeletedFinalStateUnknown(Generic[R]):
    """An object whose deletion was missed: a list shows that it is gone.

    Our informers hand over the last known object itself; this is for those who watch by other means.

    Attributes:
        key: of the object.
        obj: the last state that was seen, which may be older than its last.
    """

    key: ObjectKey
    obj: R | None = None


def _ours(obj: Resource) -> bool:
    return True


def _no_candidates(obj: Resource) -> Iterable[ObjectKey]:
    return ()


class Dependents(Generic[R, O]):
    """Watches one kind of owned objects on behalf of one kind of owner.

    Args:
        owner_kind: the kind of the owners.
        owners: the owners that are known.
        expectations: what they wait for; names are noted under ``kind``.
        enqueue: wakes an owner.
        log: where deletions go that cannot be read.
        kind: the qualifier that ``expect_creations`` is called with, if any.
        accepts: whether an object counts at all, e.g. by a label for its role.
        candidates: who might adopt an orphan.
    """

    def __init__(  # noqa: PLR0913  what it watches, for whom, and where it reports
        self,
        *,
        owner_kind: AnyKind,
        owners: Indexer[O],
        expectations: Expectations,
        enqueue: Callable[[ObjectKey], object],
        log: Logger,
        kind: str = "",
        accepts: Callable[[R], bool] = _ours,
        candidates: Callable[[R], Iterable[ObjectKey]] = _no_candidates,
    ) -> None:
        self._owner_kind = owner_kind
        self._owners = owners
        self._expectations = expectations
        self._enqueue = enqueue
        self._log = log
        self._kind = kind
        self._accepts = accepts
        self._candidates = candidates

    def attach(self, informer: Informer[R]) -> None:
        """Listen to an informer."""
        informer.add_handler(self.added, self.updated, self.deleted)

    def resolve(self, namespace: str, reference: OwnerReference | None) -> O | None:
        """The owner that a reference means: same group and kind, and the very UID."""
        if reference is None or reference.kind != self._owner_kind.kind:
            return None
        group = reference.api_version.rpartition("/")[0]
        if group != self._owner_kind.group:
            return None
        where = namespace if self._owner_kind.namespaced else ""
        owner = self._owners.get(ObjectKey(where, reference.name))
        if owner is None or owner.metadata.uid != reference.uid:
            return None
        return owner

    def added(self, obj: R) -> None:
        """An object appeared. One that is on its way out already is no creation of ours."""
        if not self._accepts(obj):
            return
        if obj.metadata.deletion_timestamp:
            self.deleted(obj)
            return
        owner = self._owner(obj.metadata)
        if owner is not None:
            self._expectations.creation_observed(
                owner.metadata.uid, obj.metadata.name, kind=self._kind
            )
            self._enqueue(owner.key)
        elif controller_of(obj.metadata) is None:
            self._wake_candidates(obj)

    def updated(self, old: R, new: R) -> None:
        """An object changed: both its old and its new owner want to know."""
        if old.metadata.resource_version == new.metadata.resource_version:
            return
        before, after = controller_of(old.metadata), controller_of(new.metadata)
        if before is not None and before != after:
            owner = self.resolve(old.metadata.namespace, before)
            if owner is not None:
                self._enqueue(owner.key)
        owner = self.resolve(new.metadata.namespace, after)
        if owner is not None:
            if new.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
                self._expectations.deletion_observed(owner.metadata.uid, new.metadata.uid)
            self._enqueue(owner.key)
        elif after is None and (before is not None or old.metadata.labels != new.metadata.labels):
            self._wake_candidates(new)

    def deleted(self, obj: R | DeletedFinalStateUnknown[R]) -> None:
        """An object went, or is going; ``obj`` may be an older state than its last."""
        if isinstance(obj, DeletedFinalStateUnknown):
            if not isinstance(obj.obj, Resource):
                found = type(obj.obj).__name__
                self._log.error("deletion ignored: no last state", key=str(obj.key), found=found)
                return
            obj = obj.obj
        if not self._accepts(obj):
            return
        owner = self._owner(obj.metadata)
        if owner is not None:
            uid = owner.metadata.uid
            self._expectations.deletion_observed(uid, obj.metadata.uid)
            # An owner that was deleted before it was seen will never be seen.
            self._expectations.creation_observed(uid, obj.metadata.name, kind=self._kind)
            self._enqueue(owner.key)

    def _owner(self, meta: ObjectMeta) -> O | None:
        return self.resolve(meta.namespace, controller_of(meta))

    def _wake_candidates(self, obj: R) -> None:
        for key in self._candidates(obj):
            self._enqueue(key)
