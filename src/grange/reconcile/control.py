"""Making and removing what a controller owns: one write each, with the checks that precede it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from grange.api.meta import Document, OwnerReference, Resource, preconditions
from grange.api.scheme import KindInfo
from grange.api.status import AlreadyExists, ApiError, Conflict, NotFound
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
    try:
        live = await client.get(kind, name, owner.metadata.namespace)
    except NotFound as error:
        raise Conflict(_leaving(name)) from error
    if not is_controlled_by(live, owner):
        return None
    if live.metadata.deletion_timestamp:
        raise Conflict(_leaving(name))
    return live


def covers(live: object, want: object) -> bool:
    """Whether what is there has all that is wanted; the server may have added defaults."""
    if isinstance(want, dict) and isinstance(live, dict):
        return all(covers(live.get(key), value) for key, value in want.items())
    if isinstance(want, list | tuple) and isinstance(live, list | tuple):
        return len(live) == len(want) and all(map(covers, live, want))
    return live == want


async def sync_owned(
    client: Client,
    kind: KindInfo[R],
    document: Document,
    owner: Resource,
    reference: OwnerReference,
) -> R:
    """Create an object under its owner, or change the fields of its spec that differ.

    Fields that the document does not name stay as they are; one that is None is removed.

    Args:
        client: to the API.
        kind: of the object.
        document: name, labels and spec of the object, in the owner's namespace.
        owner: whose.
        reference: to the owner.

    Raises:
        AlreadyExists: the name belongs to an object that the owner does not control.
        Conflict: the name is held by an object that is being deleted, or the object changed.
    """
    name, namespace = document["metadata"]["name"], owner.metadata.namespace
    try:
        live = await client.get_document(kind, name, namespace)
    except NotFound:
        whole = {**document, "spec": _without_nulls(document["spec"])}
        whole["metadata"] = {**document["metadata"], "namespace": namespace}
        return await create_owned(client, kind, whole, reference)
    found = msgspec.convert(live, kind.view)
    if not is_controlled_by(found, owner):
        raise AlreadyExists(
            f"{kind.qualified} {namespace}/{name}: exists and belongs to another owner; "
            f"delete it or rename {owner.key}"
        )
    if found.metadata.deletion_timestamp:
        raise Conflict(_leaving(name))
    spec = live.get("spec") or {}
    change = {
        key: want for key, want in document["spec"].items() if not covers(spec.get(key), want)
    }
    if not change:
        return found
    patch = {"metadata": preconditions(found.metadata), "spec": change}
    return await client.patch(kind, name, namespace, patch=patch)


async def delete_owned(client: Client, kind: KindInfo[R], name: str, owner: Resource) -> bool:
    """Delete the object of a name if the owner controls it; whether there was anything to delete.

    Raises:
        ApiError: it cannot be read or deleted.
    """
    try:
        live = await client.get(kind, name, owner.metadata.namespace)
    except NotFound:
        return False
    return is_controlled_by(live, owner) and await delete_object(client, kind, live)


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


def _leaving(name: str) -> str:
    return f"the name {name} is held by an object that is being deleted; try again"


def _without_nulls(spec: Document) -> Document:
    return {key: value for key, value in spec.items() if value is not None}


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
