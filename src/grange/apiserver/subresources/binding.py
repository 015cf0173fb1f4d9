"""``binding``: a scheduler gives a pod its node.

Atomic: the node, and the condition for it, are one write, made only if the pod has no node
yet and is not on its way out. A binding that names the pod's uid binds that pod and no other. Many
bindings may come in one request (``api.bindings``): each of them goes this same way.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from grange.api import bindings, codec, http, names, timestamps
from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import (
    ApiError,
    APIStatus,
    BadRequest,
    Cause,
    TooLarge,
    UnsupportedMediaType,
)
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_annotations, check_labels
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.apiserver.conformance import invalid
from grange.apiserver.registry import Place, Rewrite, Written
from grange.apiserver.request_context import Call, success
from grange.apiserver.subresources.subresource import Subresource
from grange.apiserver.write_options import write_options

_LIST_MAX_BYTES = 2_048 * bindings.LIMIT
_DEFINITION = "io.k8s.api.core.v1.Binding"
_NOT_YET = Written(b"")
_NOTHING: Mapping[str, Mapping[str, str]] = {}
_COUNTED = ("create", "pods/binding")
_DONE = APIStatus(code=201, status="Success")


class _BindingList(msgspec.Struct):
    items: list[Any]
    kind: str | msgspec.UnsetType = msgspec.UNSET
    apiVersion: Any = msgspec.UNSET  # noqa: N815  read, so that it is encoded again
    metadata: Any = msgspec.UNSET


_binding_list = msgspec.json.Decoder(_BindingList)


async def _create(call: Call) -> Response:
    if not call.target.name:
        return await _create_many(call)
    place = call.place
    binding = call.request_object(_DEFINITION)
    rewrite = _rewrite(place, binding, timestamps.rfc3339(call.clock.now()))
    (outcome,) = await call.registry.rewrite([rewrite], write_options(call.request.query))
    if isinstance(outcome, ApiError):
        raise outcome
    return success(place, outcome.value, code=201)


async def _create_many(call: Call) -> Response:
    """The bindings of a list, each answered for itself (see ``api.bindings``)."""
    items = _read_list(call)
    info, now = call.target.info, timestamps.rfc3339(call.clock.now())
    answers: list[ApiError | Written] = []
    rewrites: list[Rewrite] = []
    asked: list[int] = []  # where in the answers
    for item in items:
        try:
            rewrites.append(_rewrite(_place(info, item), item, now))
        except ApiError as error:
            answers.append(error)
        else:
            asked.append(len(answers))
            answers.append(_NOT_YET)
    outcomes = await call.registry.rewrite(rewrites, write_options(call.request.query))
    for at, outcome in zip(asked, outcomes, strict=True):
        answers[at] = outcome
    statuses = [
        answer.status().document() if isinstance(answer, ApiError) else _DONE for answer in answers
    ]
    codes = Counter(
        answer.code if isinstance(answer, ApiError) else _DONE.code for answer in answers
    )
    for code, number in codes.items():
        call.metrics.count(*_COUNTED, code, number)
    body = {"kind": "StatusList", "apiVersion": "v1", "items": statuses}
    return Response(200, codec.encode_any(body))


def _read_list(call: Call) -> list[Any]:
    """The bindings in a body.

    Raises:
        BadRequest: the body is no BindingList, or has duplicate fields under strict validation.
        TooLarge: it has more than ``bindings.LIMIT`` items.
        UnsupportedMediaType: it is not JSON.
    """
    request = call.request
    media = request.headers.get("content-type", http.JSON)
    if media.partition(";")[0].strip().lower() != http.JSON:
        raise UnsupportedMediaType(f'a BindingList is read as {http.JSON}, not as "{media}"')
    if len(request.body) > _LIST_MAX_BYTES:
        raise TooLarge(f"a BindingList may have {_LIST_MAX_BYTES} bytes")
    codec.check_values(request.body)
    try:
        decoded = _binding_list.decode(request.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body must be a BindingList in JSON: {error}") from error
    if decoded.kind not in ("BindingList", msgspec.UNSET):
        raise BadRequest(f"the body of a request to {bindings.PATH} must be a BindingList")
    if len(decoded.items) > bindings.LIMIT:
        raise TooLarge(
            f"a BindingList may have {bindings.LIMIT} items, this one has {len(decoded.items)}"
        )
    call.check_duplicates("BindingList", decoded)
    return decoded.items


def _place(info: AnyKind, binding: Any) -> Place:
    """The pod that a binding of a list is for.

    Raises:
        BadRequest: it is missing.
    """
    meta = binding.get("metadata") if isinstance(binding, dict) else None
    if isinstance(meta, dict):
        namespace, name = meta.get("namespace"), meta.get("name")
        if isinstance(namespace, str) and isinstance(name, str) and namespace and name:
            return Place(info, namespace, name)
    raise BadRequest(
        "an item of a BindingList must be a Binding with metadata.namespace and metadata.name"
    )


def _rewrite(place: Place, binding: Document, now: str) -> Rewrite:
    """What a binding does.

    Raises:
        BadRequest: the body is no Binding of this pod.
        Invalid: the target is no node, or a label or annotation is none.
    """
    node = target_node(place, binding)
    meta = binding.get("metadata") or {}
    added = _added(place, meta)
    return Rewrite(
        place,
        Attributes("bind", place.info, place.namespace, place.name, binding),
        lambda pod: bound(place, pod, node, now, added),
        _text(meta, "uid"),
        _text(meta, "resourceVersion"),
    )


def _text(meta: Document, field: str) -> str:
    value = meta.get(field) or ""
    if not isinstance(value, str):
        raise BadRequest(f"metadata.{field} must be a string")
    return value


def target_node(place: Place, binding: Document) -> str:
    """The node that a Binding names.

    Raises:
        BadRequest: the body is no Binding of this pod.
        Invalid: the target is no node.
    """
    meta, target = binding.get("metadata") or {}, binding.get("target") or {}
    if binding.get("kind", "Binding") != "Binding" or not isinstance(meta, dict):
        raise BadRequest("the body of a binding must be a v1 Binding")
    if meta.get("name") not in (place.name, "", None):  # a tuple: it may hold anything
        raise BadRequest(f'the binding is for pod "{meta["name"]}", the path for "{place.name}"')
    if not isinstance(target, dict) or target.get("kind") not in ("Node", "", None):
        raise BadRequest("target.kind of a binding must be Node")
    name = target.get("name")
    if not name or not isinstance(name, str):
        cause = Cause("FieldValueRequired", "Required value: name the node", "target.name")
        raise invalid(place.info, place.name, [cause])
    if fault := names.check_dns_subdomain(name):
        cause = Cause("FieldValueInvalid", f'Invalid value: "{name}": {fault}', "target.name")
        raise invalid(place.info, place.name, [cause])
    return name


def bound(
    place: Place, pod: Document, node: str, now: str, added: Mapping[str, Mapping[str, str]]
) -> Document:
    """The pod with its node; the pod is not changed.

    Raises:
        Conflict: it has a node already, or is being deleted.
    """
    spec, metadata = pod.get("spec") or {}, pod["metadata"]
    if spec.get("nodeName"):
        why = f'pod {place.name} is already assigned to node "{spec["nodeName"]}"'
        raise storage.conflict(place.info, place.name, why)
    if metadata.get("deletionTimestamp"):
        why = f"pod {place.name} is being deleted, cannot be assigned to a host"
        raise storage.conflict(place.info, place.name, why)
    if added:
        merged = {field: {**(metadata.get(field) or {}), **more} for field, more in added.items()}
        metadata = {**metadata, **merged}
    status = pod.get("status") or {}
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
    if before := status.get("conditions"):
        conditions[:0] = [item for item in before if item["type"] != "PodScheduled"]
    status = {**status, "conditions": conditions}
    status.pop("nominatedNodeName", None)  # a promise that is kept, or not needed any more
    return {**pod, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": status}


def _added(place: Place, meta: Document) -> Mapping[str, Mapping[str, str]]:
    """The labels and annotations that the binding adds; the write itself is not checked again."""
    if "labels" not in meta and "annotations" not in meta:
        return _NOTHING
    faults = Faults()
    found = {}
    for field, check in (("labels", check_labels), ("annotations", check_annotations)):
        given = meta.get(field) or {}
        if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
            raise BadRequest(f"metadata.{field} of the binding must be an object of strings")
        if given:
            check(given, f"metadata.{field}", faults)
            found[field] = given
    if faults.causes:
        raise invalid(place.info, place.name, faults.causes)
    return found


BINDING = Subresource("binding", {"create": _create}, kind="Binding")
