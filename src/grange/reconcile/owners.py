"""Owner references: whose an object is, and claiming those that fit.

An object has at most one controlling owner. A controller claims its own objects and the orphans
that match its selector (*adopts*), and lets go of owned ones that no longer match (*releases*). Both
are patches fenced by the object's UID and version, so another object of the name is never touched, nor an object that
has changed since it was judged; the server refuses a second controller.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from grange.api.meta import Document, OwnerReference, Resource, controller_of, preconditions
from grange.api.scheme import AnyKind, KindInfo
from grange.api.status import ApiError, Invalid, NotFound
from grange.base.errors import GrangeError
from grange.client.client import Client

R = TypeVar("R", bound=Resource)
O = TypeVar("O", bound=Resource)  # noqa: E741  the owner's kind


class InvalidReference(GrangeError):
    """An owner reference that must not be written; the message names the field."""


class CannotAdopt(GrangeError):
    """The owner as it is now must not adopt: it is being deleted, or is another object."""


def owner_reference(info: AnyKind, owner: Resource) -> OwnerReference:
    """The reference by which the owner controls an object and holds back its own deletion."""
    return OwnerReference(
        api_version=info.api_version,
        kind=info.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def check_reference(reference: OwnerReference | None) -> OwnerReference:
    """The reference, if it is fit to be written on a new object.

    Raises:
        InvalidReference: it is missing, or one of its parts is; each has its own message.
    """
    if reference is None:
        raise InvalidReference("an owner reference is required")
    if not reference.api_version:
        raise InvalidReference("the owner reference has no apiVersion")
    if not reference.kind:
        raise InvalidReference("the owner reference has no kind")
    if not reference.controller:
        raise InvalidReference("the owner reference does not have controller set to true")
    if not reference.block_owner_deletion:
        raise InvalidReference("the owner reference does not have blockOwnerDeletion set to true")
    return reference


def is_controlled_by(obj: Resource, owner: Resource) -> bool:
    """Whether this very owner (by UID) controls the object."""
    reference = controller_of(obj.metadata)
    return reference is not None and reference.uid == owner.metadata.uid


CONTROLLER_UID = "controller-uid"
"""Name of the index of objects by the UID of the owner that controls them."""


def controller_uid(obj: Resource) -> Sequence[str]:
    """The UID of the owner that controls an object, as values of an index."""
    reference = controller_of(obj.metadata)
    return () if reference is None else (reference.uid,)


def recheck_deletion_timestamp(
    get_object: Callable[[], Awaitable[Resource]],
) -> Callable[[], Awaitable[None]]:
    """A check that an owner may adopt: it can be read and is not being deleted.

    Args:
        get_object: reads the owner from the server; raises ``CannotAdopt`` for another object.

    Returns:
        The check; it raises ``CannotAdopt``. It remembers nothing, ``RefManager`` does.
    """

    async def check() -> None:
        try:
            live = await get_object()
        except ApiError as error:
            raise CannotAdopt(f"cannot recheck the deletion timestamp: {error}") from error
        if live.metadata.deletion_timestamp:
            raise CannotAdopt(
                f"{live.key}: is being deleted since {live.metadata.deletion_timestamp}"
            )

    return check


def live_check(client: Client, kind: KindInfo[O], owner: O) -> Callable[[], Awaitable[None]]:
    """A check against the server, not the cache, that the owner may adopt.

    The returned function raises ``CannotAdopt`` if the owner cannot be read, is being deleted or is
    another object of the same name.
    """

    async def get() -> O:
        live = await client.get(kind, owner.metadata.name, owner.metadata.namespace)
        if live.metadata.uid != owner.metadata.uid:
            raise CannotAdopt(
                f"{kind.qualified} {owner.key}: is another object now "
                f"(uid {live.metadata.uid}, was {owner.metadata.uid})"
            )
        return live

    return recheck_deletion_timestamp(get)


@dataclass(frozen=True, slots=True)
class Claims(Generic[R]):
    """The outcome of claiming.

    Attributes:
        objects: ours now, in the order given; adopted ones as the server returned them.
        errors: what went wrong with others; try again later if there are any.
    """

    objects: list[R] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


class RefManager(Generic[R]):
    """Claims objects for one owner; make a fresh one for each reconcile.

    Args:
        client: for the patches.
        owner: the owner.
        owner_kind: its kind.
        kind: the kind of the objects.
        matches: whether an object belongs to the owner by its labels (and whatever else counts).
        can_adopt: run before the first adoption, once; if it raises, nothing is adopted.
        labels: put on what is adopted, in the write that makes it ours.
    """

    def __init__(
        self,
        client: Client,
        *,
        owner: Resource,
        owner_kind: AnyKind,
        kind: KindInfo[R],
        matches: Callable[[R], bool],
        can_adopt: Callable[[], Awaitable[None]],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._client = client
        self._owner = owner
        self._reference = owner_reference(owner_kind, owner)
        self._kind = kind
        self._matches = matches
        self._can_adopt = can_adopt
        self._labels = dict(labels or {})
        self._checked = False
        self._refusal: Exception | None = None

    async def claim(self, objects: Iterable[R]) -> Claims[R]:
        """Adopt, keep and release; an error with one object does not keep the others waiting."""
        claims: Claims[R] = Claims()
        for obj in objects:
            try:
                claimed = await self._claim_one(obj)
            except (ApiError, CannotAdopt) as error:
                claims.errors.append(error)
                continue
            if claimed is not None:
                claims.objects.append(claimed)
        return claims

    async def _claim_one(self, obj: R) -> R | None:
        controller = controller_of(obj.metadata)
        terminating = bool(self._owner.metadata.deletion_timestamp)
        if controller is not None:
            if controller.uid != self._owner.metadata.uid:
                return None
            if self._matches(obj):
                return obj
            if not terminating:
                await self._release(obj)
            return None
        if terminating or obj.metadata.deletion_timestamp or not self._matches(obj):
            return None
        return await self._adopt(obj)

    async def _adopt(self, obj: R) -> R | None:
        if not self._checked:
            self._checked = True
            try:
                await self._can_adopt()
            except (ApiError, CannotAdopt) as error:
                self._refusal = error
        if self._refusal is not None:
            raise CannotAdopt(
                f"cannot adopt {self._kind.qualified} {obj.key}: {self._refusal}"
            ) from self._refusal
        reference = _document(self._reference)
        others = [item for item in obj.metadata.owner_references if item.uid != self._reference.uid]
        try:
            return await self._patch(
                obj, [*map(_document, others), reference], [reference], self._labels
            )
        except NotFound:
            return None

    async def _release(self, obj: R) -> None:
        uid = self._reference.uid
        others = [item for item in obj.metadata.owner_references if item.uid != uid]
        # Gone, or no longer ours: either way there is nothing to let go.
        with suppress(NotFound, Invalid):
            await self._patch(obj, [*map(_document, others)], [{"$patch": "delete", "uid": uid}])

    async def _patch(
        self,
        obj: R,
        whole: list[Document],
        change: list[Document],
        labels: Mapping[str, str] | None = None,
    ) -> R:
        """Write owner references, and labels with them, so that no other client's change is lost.

        Built-in kinds merge the list by UID, so naming our entry is enough. The others know only
        the merge patch, which replaces the list: there the whole list is written. Both are fenced by
        the version that was judged: a late one must not undo a later decision.
        """
        meta = obj.metadata
        fence: Document = preconditions(meta)
        if labels:
            fence["labels"] = dict(labels)
        if "." not in self._kind.group:
            return await self._client.patch(
                self._kind,
                meta.name,
                meta.namespace,
                patch={"metadata": {**fence, "ownerReferences": change}},
                type="strategic",
            )
        return await self._client.patch(
            self._kind,
            meta.name,
            meta.namespace,
            patch={"metadata": {**fence, "ownerReferences": whole}},
        )


def _document(reference: OwnerReference) -> Document:
    document: Document = msgspec.to_builtins(reference)
    return document
