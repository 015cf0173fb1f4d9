"""``token`` of service accounts: a TokenRequest in, the same with a token out."""

from typing import Any

from grange.api import codec, schema, timestamps
from grange.api.http import Response
from grange.api.kinds import POD, SERVICEACCOUNT
from grange.api.meta import Document
from grange.api.status import BadRequest, Cause, Conflict, Invalid
from grange.apiserver.account_tokens import AUDIENCE, Bound
from grange.apiserver.admission.noderestriction import check_token
from grange.apiserver.client_certificates import node_of
from grange.apiserver.registry import Place
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource

_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"
_DEFINITION = f"io.k8s.api.authentication.v1.{_KIND}"
_SECONDS = 3600
_SECONDS_MIN, _SECONDS_MAX = 600, 1 << 32


async def _create(call: Call) -> Response:
    document = call.request_object(_DEFINITION)
    head = {"apiVersion": f"{_GROUP}/v1", "kind": _KIND}
    for field, wanted in head.items():
        if document.get(field, wanted) != wanted:
            raise BadRequest(f"{field}: must be {wanted}, not {document[field]!r}")
    document.pop("status", None)  # typed clients send an empty one
    _refuse(schema.check_definition(document, _DEFINITION))
    spec = document.get("spec") or {}
    seconds = spec.get("expirationSeconds") or _SECONDS
    _refuse(_of_time(seconds))
    account = _identified(call, Place(SERVICEACCOUNT, call.place.namespace, call.place.name))
    audiences = list(spec.get("audiences") or ()) or [AUDIENCE]
    bound = spec.get("boundObjectRef")
    if node := node_of(call.request.user):
        check_token(call.registry.store, node, call.place.namespace, account.name, bound)
    token, expires = call.accounts.issue(
        call.place.namespace,
        account,
        pod=_pod(call, bound) if bound else None,
        audiences=audiences,
        seconds=seconds,
    )
    meta = {"name": account.name, "namespace": call.place.namespace, "creationTimestamp": None}
    body: Document = {
        **head,
        "metadata": meta,
        "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": timestamps.rfc3339(expires)},
    }
    return Response(201, codec.encode(body))


def _of_time(seconds: int) -> list[Cause]:
    path = "spec.expirationSeconds"
    if seconds < _SECONDS_MIN:
        message = f"may not specify a duration less than 10 minutes ({_SECONDS_MIN})"
        return [Cause("FieldValueInvalid", message, path)]
    if seconds > _SECONDS_MAX:
        return [Cause("FieldValueInvalid", f"may not be larger than {_SECONDS_MAX}", path)]
    return []


def _refuse(causes: list[Cause]) -> None:
    if causes:
        listed = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:10])
        raise Invalid(f"{_KIND} is invalid: {listed}", kind=_KIND, group=_GROUP, causes=causes)


def _pod(call: Call, bound: Document) -> Bound:
    if (bound.get("kind"), bound.get("apiVersion", "v1")) != (POD.kind, "v1"):
        text = "spec.boundObjectRef: a token can be bound to a v1 Pod only"
        raise BadRequest(text)
    pod = _identified(call, Place(POD, call.place.namespace, bound.get("name") or ""))
    if (uid := bound.get("uid")) and uid != pod.uid:
        raise Conflict(
            f"the UID in the bound object reference ({uid}) does not match that of the pod "
            f"{pod.name} ({pod.uid})",
            kind=POD.plural,
            name=pod.name,
        )
    return pod


def _identified(call: Call, place: Place) -> Bound:
    """An object that is there, by name and uid."""
    found: dict[str, Any] = codec.decode_document(call.registry.get(place).value)
    return Bound(place.name, str(found["metadata"]["uid"]))


TOKEN = Subresource("token", {"create": _create}, kind=_KIND, group=_GROUP)
