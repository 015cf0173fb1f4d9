"""Making and removing what a controller owns: one write each, with the checks that precede it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from grange.api.meta import Document, OwnerReference, Resource
from grange.api.scheme import KindInfo
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.reconcile.owners import check_reference, is_controlled_by

R = TypeVar("R", bound=Resource)
T = TypeVar("T")


class NoLabels(GrangeError):
    """The object to create has no labels, so no selector would ever find it again."""


def from_template(
    template: Document, *, name: str, namespace: str, owner: OwnerReference
) -> Document:
    """A new object from a template (metadata and spec): labels, annotations and finalizers copied.

    The template is not changed and shares nothing with the result.

    Raises:
        InvalidReference: the owner reference is not fit to be written.
        NoLabels: the template has none.
    """
    reference = msgspec.to_builtins(check_reference(owner))
    meta = template.get("metadata") or {}
    if not meta.get("labels"):
        raise NoLabels(f"{namespace}/{name}: the template has no labels")
    document: Document = {
        key: _copy(value) for key, value in template.items() if key not in {"metadata", "status"}
    }
    document["metadata"] = {
        "name": name,
        "namespace": namespace,
        **{
            key: _copy(meta[key])
            for key in ("labels", "annotations", "finalizers")
            if meta.get(key)
        },
        "ownerReferences": [reference],
    }
    return document


async def create_owned(
    client: Client, kind: KindInfo[R], document: Document, owner: OwnerReference
) -> R:
    """Create an object under an owner, with one request.

    Raises:
        InvalidReference, NoLabels: nothing was sent.
        ApiError: the server's answer; after ``Timeout`` the outcome is unknown.
    """
    reference = msgspec.to_builtins(check_reference(owner))
    meta = document.get("metadata") or {}
    if not meta.get("labels"):
        raise NoLabels(f"{kind.qualified} {meta.get('name')}: the object has no labels")
    references = [
        item for item in meta.get("ownerReferences") or [] if item.get("uid") != owner.uid
    ]
    complete = {**document, "metadata": {**meta, "ownerReferences": [*references, reference]}}
    return await client.create(kind, complete)


async def find_owned(client: Client, kind: KindInfo[R], name: str, owner: Resource) -> R | None:
    """Read who has a name that ``create`` found taken.

    Returns:
        The object if the owner controls it, which its cache will show; None if it is another's.

    Raises:
        Conflict: one of the owner's had it, and is gone or being deleted: the name is free soon.
    """
    leaving = f"the name {name} is held by an object that is being deleted"
    try:
        live = await client.get(kind, name, owner.metadata.namespace)
    except NotFound as error:
        raise Conflict(leaving) from error
    if not is_controlled_by(live, owner):
        return None
    if live.metadata.deletion_timestamp:
        raise Conflict(leaving)
    return live


async def delete_object(
    client: Client, kind: KindInfo[R], obj: R, *, grace_period_s: int | None = None
) -> bool:
    """Delete this very object (fenced by its UID); whether there was anything to delete.

    An object that is on its way already is left alone; one that is gone, or whose name is
    another's by now, counts as deleted. Neither is an error.

    Raises:
        ApiError: the server's answer otherwise.
    """
    if obj.metadata.deletion_timestamp and grace_period_s is None:
        return False
    try:
        await client.delete(
            kind,
            obj.metadata.name,
            obj.metadata.namespace,
            uid=obj.metadata.uid,
            grace_period_s=grace_period_s,
        )
    except (NotFound, Conflict):
        return False
    return True


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


async def slow_start(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> ApiError | None:
    """Act on all items in order, in batches that double, until a batch has an error.

    Returns:
        The first error in the order of the items; items of later batches were not touched.
    """
    start, size = 0, 1
    while start < len(items):
        errors: dict[int, ApiError] = {}

        async def attempt(index: int, errors: dict[int, ApiError] = errors) -> None:
            try:
                await act(items[index])
            except ApiError as error:
                errors[index] = error

        end = min(start + size, len(items))
        async with Nursery("slow start") as nursery:
            for index in range(start, end):
                nursery.start(attempt(index))
        if errors:
            return errors[min(errors)]
        start, size = end, size * 2
    return None
