"""Requests and what their answers mean: pure functions that know no transport.

Requests of all verbs are built here, and everything an answer can mean is read here, so a
verb is three lines and both halves are tested without a server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from grange.api import http
from grange.api.delete_parameters import REMOVE_FINALIZER
from grange.api.http import Request, Response
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import Document, Resource
from grange.api.scheme import AnyKind, KindInfo
from grange.api.status import ApiError, BadRequest, InternalError, from_status
from grange.client import pod_views

R = TypeVar("R", bound=Resource)

PatchType = Literal["merge", "json", "strategic"]
_PATCH_MEDIA: dict[str, str] = {
    "merge": http.MERGE_PATCH,
    "json": http.JSON_PATCH,
    "strategic": http.STRATEGIC_MERGE_PATCH,
}
_ACCEPT = {"accept": http.JSON}
_SEND_JSON = {"accept": http.JSON, "content-type": http.JSON}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """One page of a list.

    Attributes:
        items: the objects, as the server ordered them.
        resource_version: the state that the list shows; a watch may start from it.
        remaining: how many more objects follow; zero on the last page, and where the server
            does not count them.
        next: the token of the next page; empty on the last.
        undecodable: one message for each object that does not fit our view of its kind. They are
            left out of ``items``, so that one odd object does not hide all the others.
    """

    items: list[R]
    resource_version: str
    remaining: int = 0
    next: str = ""
    undecodable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a container's log.

    Attributes:
        container: its name; empty means the only one.
        follow: keep sending lines as they are written.
        previous: the log of the container's previous run.
        since_seconds: only lines younger than this; zero sends all.
        since_time: only lines after this RFC 3339 time; empty sends all.
        tail_lines: only so many last lines; None sends all.
        timestamps: start each line with its time.
        limit_bytes: end after so many bytes; zero sends all.
    """

    container: str = ""
    follow: bool = False
    previous: bool = False
    since_seconds: int = 0
    since_time: str = ""
    tail_lines: int | None = None
    timestamps: bool = False
    limit_bytes: int = 0


class _ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    remaining_item_count: int | None = 0
    next: str = msgspec.field(name="continue", default="")


class _ListBody(msgspec.Struct, Generic[R]):
    items: list[R] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Decoder(Protocol):
    def decode(self, body: bytes | msgspec.Raw, /) -> Any: ...


@cache
def object_decoder(view: type[Any]) -> _Decoder:
    """The decoder of a view, made once."""
    return pod_views.PODS if view is Pod else msgspec.json.Decoder(view)


@cache
def _list_decoder(view: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_ListBody[view])  # type: ignore[valid-type]  # a type by value


_raw_list = msgspec.json.Decoder(_RawList)
_any_object = msgspec.json.Decoder(Resource)


# --- building ---------------------------------------------------------------------------------


def _object_path(kind: AnyKind, name: str, namespace: str, subresource: str = "") -> str:
    if not name or "/" in name:
        raise BadRequest(f"{kind.qualified}: {name!r} is not a name", kind=kind.plural)
    if kind.namespaced and not namespace:
        raise BadRequest(f"{kind.qualified} {name!r}: name its namespace", kind=kind.plural)
    return kind.path(namespace, name, subresource)


def get(kind: AnyKind, name: str, namespace: str = "", *, subresource: str = "") -> Request:
    """Read one object, or one of its subresources."""
    return Request("GET", _object_path(kind, name, namespace, subresource), headers=_ACCEPT)


def list_page(
    kind: AnyKind,
    namespace: str = "",
    *,
    labels: str = "",
    fields: str = "",
    limit: int = 0,
    cont: str = "",
    resource_version: str = "",
) -> Request:
    """Read a collection, or one page of it; without a namespace, across all."""
    query: dict[str, str] = {}
    if labels:
        query["labelSelector"] = labels
    if fields:
        query["fieldSelector"] = fields
    if limit:
        query["limit"] = str(limit)
    if cont:
        query["continue"] = cont
    if resource_version:
        query["resourceVersion"] = resource_version
    return Request("GET", kind.path(namespace), query=query, headers=_ACCEPT)


def watch(
    kind: AnyKind,
    namespace: str = "",
    *,
    resource_version: str,
    labels: str = "",
    fields: str = "",
    timeout_s: float | None = None,
) -> Request:
    """Follow a collection from a version on, bookmarks included."""
    request = list_page(
        kind, namespace, labels=labels, fields=fields, resource_version=resource_version
    )
    query = dict(request.query)
    query["watch"] = "true"
    query["allowWatchBookmarks"] = "true"
    if timeout_s is not None:
        query["timeoutSeconds"] = str(max(1, int(timeout_s)))
    request.query = query
    return request


def _identity(obj: Resource | Document) -> tuple[str, str]:
    """Namespace and name of a view or a document."""
    if isinstance(obj, Resource):
        return obj.metadata.namespace, obj.metadata.name
    meta = obj.get("metadata") or {}
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _complete(kind: AnyKind, obj: Resource | Document) -> bytes:
    """The object's bytes, with the apiVersion and kind that list items lack."""
    if isinstance(obj, Resource):
        if not obj.kind or not obj.api_version:
            obj = msgspec.structs.replace(obj, api_version=kind.api_version, kind=kind.kind)
    elif "kind" not in obj or "apiVersion" not in obj:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    return _encode(obj)


def create(
    kind: AnyKind, obj: Resource | Document, namespace: str = "", *, dry_run: bool = False
) -> Request:
    """Create an object; the namespace is the object's own unless given."""
    where = namespace or _identity(obj)[0]
    if kind.namespaced and not where:
        raise BadRequest(f"{kind.qualified}: name the namespace to create in", kind=kind.plural)
    return Request(
        "POST",
        kind.path(where if kind.namespaced else ""),
        query={"dryRun": "All"} if dry_run else {},
        headers=_SEND_JSON,
        body=_complete(kind, obj),
    )


def update(kind: AnyKind, obj: Resource | Document, *, subresource: str = "") -> Request:
    """Replace an object, or one of its subresources."""
    namespace, name = _identity(obj)
    path = _object_path(kind, name, namespace, subresource)
    return Request("PUT", path, headers=_SEND_JSON, body=_complete(kind, obj))


def patch(
    kind: AnyKind,
    name: str,
    namespace: str = "",
    *,
    patch: Document | Sequence[Document],
    media: PatchType = "merge",
    subresource: str = "",
) -> Request:
    """Change part of an object."""
    return Request(
        "PATCH",
        _object_path(kind, name, namespace, subresource),
        headers={"accept": http.JSON, "content-type": _PATCH_MEDIA[media]},
        body=_encode(patch),
    )


def delete(  # noqa: PLR0913  the options of the API
    kind: AnyKind,
    name: str,
    namespace: str = "",
    *,
    uid: str = "",
    resource_version: str = "",
    grace_period_s: int | None = None,
    propagation: str = "",
    finalizer: str = "",
) -> Request:
    """Delete an object, if the preconditions hold."""
    options: Document = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if preconditions := _preconditions(uid, resource_version):
        options["preconditions"] = preconditions
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if propagation:
        options["propagationPolicy"] = propagation
    path = _object_path(kind, name, namespace)
    query = {REMOVE_FINALIZER: finalizer} if finalizer else {}
    return Request("DELETE", path, query, _SEND_JSON, _encode(options))


def evict(name: str, namespace: str, uid: str, resource_version: str) -> Request:
    """Evict a pod, if the preconditions hold."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": _preconditions(uid, resource_version)},
    }
    return post(POD, name, namespace, "eviction", body)


def _preconditions(uid: str, resource_version: str) -> Document:
    fence = {"uid": uid, "resourceVersion": resource_version}
    return {key: value for key, value in fence.items() if value}


def post(kind: AnyKind, name: str, namespace: str, subresource: str, body: Document) -> Request:
    """Post to a subresource, e.g. a pod's binding."""
    path = _object_path(kind, name, namespace, subresource)
    return Request("POST", path, headers=_SEND_JSON, body=_encode(body))


def logs(kind: AnyKind, name: str, namespace: str, options: LogOptions) -> Request:
    """Read a pod's log."""
    query: dict[str, str] = {}
    if options.container:
        query["container"] = options.container
    flags = {"follow": options.follow, "previous": options.previous}
    query.update({key: "true" for key, value in flags.items() if value})
    if options.since_seconds:
        query["sinceSeconds"] = str(options.since_seconds)
    if options.since_time:
        query["sinceTime"] = options.since_time
    if options.tail_lines is not None:
        query["tailLines"] = str(options.tail_lines)
    if options.timestamps:
        query["timestamps"] = "true"
    if options.limit_bytes:
        query["limitBytes"] = str(options.limit_bytes)
    path = _object_path(kind, name, namespace, "log")
    return Request("GET", path, query=query, headers={"accept": "*/*"})


# --- interpreting -----------------------------------------------------------------------------


def failure(response: Response, body: bytes | None = None) -> ApiError | None:
    """The error that an answer stands for; None for success.

    A ``Retry-After`` header fills ``retry_after_s`` where the body does not.
    """
    if 200 <= response.status < 300:
        return None
    error = from_status(response.status, response.body if body is None else body)
    if not error.details.retry_after_seconds:
        seconds = retry_after(response.headers)
        if seconds:
            error.details = msgspec.structs.replace(error.details, retry_after_seconds=seconds)
    return error


def retry_after(headers: Mapping[str, str]) -> int:
    """Whole seconds of a ``Retry-After`` header; zero without one (dates are not understood)."""
    for name, value in headers.items():
        if name.lower() == "retry-after" and value.strip().isdigit():
            return int(value)
    return 0


def decode_object(view: type[R], body: bytes, what: str) -> R:
    """One object.

    Raises:
        InternalError: the body is not such an object; the message names the field.
    """
    try:
        decoded: R = object_decoder(view).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InternalError(f"{what}: cannot read the answer: {error}") from error
    return decoded


def decode_document(body: bytes, what: str) -> Document:
    """A whole document.

    Raises:
        InternalError: the body is not a JSON object.
    """
    try:
        decoded: Document = object_decoder(dict).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InternalError(f"{what}: cannot read the answer: {error}") from error
    return decoded


def decode_list(kind: KindInfo[R], body: bytes) -> Listing[R]:
    """One page of a list, straight into views in one pass.

    Raises:
        InternalError: the body is not a list.
    """
    try:
        if kind.view is Pod:
            raw = _list_decoder(pod_views.RawPod).decode(body)
            return _listing(pod_views.PODS.complete_all(raw.items or []), raw.metadata)
        decoded = _list_decoder(kind.view).decode(body)
    except msgspec.ValidationError:
        return _decode_list_leniently(kind, body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InternalError(f"list of {kind.qualified}: cannot read it: {error}") from error
    return _listing(decoded.items or [], decoded.metadata)


def _decode_list_leniently(kind: KindInfo[R], body: bytes) -> Listing[R]:
    """Object by object, leaving out those that do not fit the view."""
    try:
        raw = _raw_list.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InternalError(f"list of {kind.qualified}: cannot read it: {error}") from error
    decoder = object_decoder(kind.view)
    items: list[R] = []
    undecodable: list[str] = []
    for item in raw.items or []:
        try:
            items.append(decoder.decode(item))
        except msgspec.MsgspecError as error:
            undecodable.append(f"{kind.qualified} {name_of(item)}: {error}")
    return _listing(items, raw.metadata, tuple(undecodable))


def _listing(items: list[R], meta: _ListMeta, undecodable: tuple[str, ...] = ()) -> Listing[R]:
    return Listing(
        items, meta.resource_version, meta.remaining_item_count or 0, meta.next, undecodable
    )


def name_of(body: bytes | msgspec.Raw) -> str:
    """Namespace and name of an object's bytes, as far as they can be read: for messages."""
    try:
        return str(_any_object.decode(body).key)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "?"
