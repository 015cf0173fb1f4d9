"""The stored form of objects: keys, bytes with their own revision, and what the work costs.

An object is stored as the bytes that clients get. They begin the same way for every object of a
kind (``{"apiVersion":…,"kind":…,"metadata":{"resourceVersion":"``), so the revision, known only at
acceptance, is spliced in at a fixed place and the document is encoded exactly once a write.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from grange.api import codec
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    InsufficientStorage,
    InternalError,
    NotFound,
    ServiceUnavailable,
    TooLarge,
)
from grange.store import errors

OBJECT_MAX_BYTES = 1_572_864  # etcd's request limit, 1.5 MiB: what fits here fits on a cluster


NO_PARTS: Mapping[str, msgspec.Raw] = MappingProxyType({})


@dataclass(slots=True)
class Work:
    """How often the costly things were done; ``/metrics`` shows them.

    Attributes:
        decodes: stored or received bytes made into documents.
        outlines: so many of these left the spec raw.
        renewals: Leases whose renewal was written without the checks of a whole object.
        encodes: documents made into bytes for the store.
        event_encodes: watch events made into bytes for the wire.
        evaluations: partial decodes for selectors.
    """

    decodes: int = 0
    outlines: int = 0
    renewals: int = 0
    encodes: int = 0
    event_encodes: int = 0
    evaluations: int = 0

    def operations(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Each count with the name of its operation."""
        yield ("decode",), self.decodes
        yield ("decode_outline",), self.outlines
        yield ("renew_lease",), self.renewals
        yield ("encode",), self.encodes
        yield ("encode_event",), self.event_encodes
        yield ("select",), self.evaluations


@lru_cache(maxsize=1024)
def _kind_prefix(group: str, plural: str) -> str:
    return f"/{group or 'core'}/{plural}/"


def prefix(info: AnyKind, namespace: str = "") -> str:
    """What the keys of a kind, or of a kind in one namespace, begin with."""
    start = _kind_prefix(info.group, info.plural)
    return f"{start}{namespace}/" if namespace and info.namespaced else start


def key(info: AnyKind, namespace: str, name: str) -> str:
    """The key of an object."""
    return prefix(info, namespace) + name


def names_of(stored_key: str, info: AnyKind) -> tuple[str, str]:
    """Namespace and name of a key; the namespace is empty for cluster-scoped kinds."""
    parts = stored_key.split("/")
    return (parts[3], parts[4]) if info.namespaced else ("", parts[3])


@lru_cache(maxsize=1024)
def _head(api_version: str, kind: str) -> bytes:
    return b'{"apiVersion":%s,"kind":%s,"metadata":{"resourceVersion":"' % (
        codec.encode_any(api_version),
        codec.encode_any(kind),
    )


def encode(
    info: AnyKind, document: Document, work: Work, parts: Mapping[str, msgspec.Raw] = NO_PARTS
) -> Callable[[int], bytes]:
    """The object's bytes, still open for its revision.

    Args:
        info: the kind.
        document: the object.
        work: counts.
        parts: the bytes of fields that need not be encoded again.

    Raises:
        TooLarge: more than ``OBJECT_MAX_BYTES``.
    """
    work.encodes += 1
    metadata = {"resourceVersion": "", **document["metadata"]}
    metadata["resourceVersion"] = ""
    ordered = {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}
    ordered |= {name: value for name, value in document.items() if name not in _FIRST}
    ordered |= parts
    return _open(info, ordered)


def encode_again(info: AnyKind, document: Document, work: Work) -> Callable[[int], bytes]:
    """As ``encode``, for a document that was decoded from stored bytes and kept its order.

    Raises:
        TooLarge: more than ``OBJECT_MAX_BYTES``.
    """
    work.encodes += 1
    return _open(info, document)


def _open(info: AnyKind, ordered: Document) -> Callable[[int], bytes]:
    body = codec.encode(ordered)
    head = _head(info.api_version, info.kind)
    if len(body) > OBJECT_MAX_BYTES:
        raise TooLarge(
            f"{info.kind} is too large: {len(body)} bytes of JSON, at most {OBJECT_MAX_BYTES}",
            kind=info.plural,
            group=info.group,
            name=ordered["metadata"].get("name", ""),
        )
    codec.check_values(body)
    tail = body[body.index(b'"', len(head)) :]

    def value(revision: int) -> bytes:
        # A dry run has no revision, and none is shown then.
        return b"%b%d%b" % (head, revision, tail) if revision else head + tail

    return value


_FIRST = frozenset({"apiVersion", "kind", "metadata"})


def at_revision(info: AnyKind, body: bytes, revision: int) -> bytes:
    """The same object carrying another revision; nothing is decoded."""
    head = _head(info.api_version, info.kind)
    return b"%b%d%b" % (head, revision, body[body.index(b'"', len(head)) :])


def decode(body: bytes, work: Work) -> Document:
    """The whole document of stored bytes."""
    work.decodes += 1
    document: Document = codec.decode_trusted(body)
    return document


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    apiVersion: str  # noqa: N815  as stored
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    status: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


_outline = msgspec.json.Decoder(_Outline)


def decode_outline(body: bytes, work: Work) -> Document:
    """As ``decode``, but of the spec only ``nodeName``: other members are raw (``msgspec.Raw``).

    For those who change little: most of a pod is its spec.
    """
    try:
        found = _outline.decode(body)
    except msgspec.ValidationError:  # it has other fields
        return decode(body, work)
    work.decodes += 1
    work.outlines += 1
    parts = {name: part for name in _OUTLINE if (part := getattr(found, name)) is not msgspec.UNSET}
    if node := parts.get("spec", _NOTHING).get("nodeName"):
        parts["spec"]["nodeName"] = codec.decode_trusted(node)
    return parts


_NOTHING: Document = {}
_OUTLINE = _Outline.__struct_fields__


def not_found(info: AnyKind, name: str) -> NotFound:
    """The object does not exist."""
    return NotFound(
        f'{info.qualified} "{name}" not found', kind=info.plural, name=name, group=info.group
    )


def already_exists(info: AnyKind, name: str) -> AlreadyExists:
    """The name is taken."""
    return AlreadyExists(
        f'{info.qualified} "{name}" already exists', kind=info.plural, name=name, group=info.group
    )


def conflict(info: AnyKind, name: str, why: str) -> Conflict:
    """The object is not the one that the caller means."""
    return Conflict(
        f'Operation cannot be fulfilled on {info.qualified} "{name}": {why}',
        kind=info.plural,
        name=name,
        group=info.group,
    )


CHANGED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def translate(error: errors.StoreError, info: AnyKind | None = None, name: str = "") -> ApiError:
    """The API's word for what the store refused."""
    match error:
        case errors.RevisionMismatch() if info is not None:
            if error.actual == 0:
                return not_found(info, name)
            if error.expected == 0:
                return already_exists(info, name)
            return conflict(info, name, CHANGED)
        case errors.WriteDeclined() if info is not None:
            return conflict(info, name, str(error))
        case errors.Compacted():
            return Expired(f"the requested revision is no longer kept; list again ({error})")
        case errors.StorageFull():
            return InsufficientStorage(f"nothing was written: {error}")
        case errors.StoreClosed():
            return ServiceUnavailable(f"the store is closed: {error}", retry_after_s=1)
        case _:
            return InternalError(f"the store failed: {error}")


@contextmanager
def translated(info: AnyKind | None = None, name: str = "") -> Iterator[None]:
    """Raise the store's errors as the API's."""
    try:
        yield
    except errors.StoreError as error:
        raise translate(error, info, name) from error
