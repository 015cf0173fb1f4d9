"""Questions that a caller asks about itself: who it is, and what it may do.

Kinds that are created and never stored: the answer to the create is the object with its status.
Everybody who is authenticated may ask.
"""

from collections.abc import Callable
from typing import Any

from grange.api import codec, schema
from grange.api.http import Request, Response, User
from grange.api.meta import Document, Resource
from grange.api.scheme import KindInfo
from grange.api.status import BadRequest, Cause, Forbidden, Invalid, MethodNotAllowed
from grange.apiserver import authz
from grange.apiserver.request_context import read_request_object, warning_headers

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
VERBS = ("create",)


class ReviewResource(Resource, frozen=True):
    """Any of them; the server alone reads them."""


def _kind(group: str, kind: str) -> KindInfo[ReviewResource]:
    return KindInfo(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        view=ReviewResource,
        schema=f"io.k8s.api.{group.partition('.')[0]}.v1.{kind}",
        namespaced=False,
        has_status=False,
    )


SELFSUBJECTREVIEW = _kind(_AUTHENTICATION, "SelfSubjectReview")
SELFSUBJECTACCESSREVIEW = _kind(_AUTHORIZATION, "SelfSubjectAccessReview")
SELFSUBJECTRULESREVIEW = _kind(_AUTHORIZATION, "SelfSubjectRulesReview")
KINDS = (SELFSUBJECTREVIEW, SELFSUBJECTACCESSREVIEW, SELFSUBJECTRULESREVIEW)

_BY_PATH = {info.path(): info for info in KINDS}


def is_review(path: str) -> bool:
    """Whether reviews are created at the path, which decides on its callers itself."""
    return path in _BY_PATH


def serve(request: Request, user: User) -> Response | None:
    """The answer to a review; None for any other path.

    Raises:
        MethodNotAllowed: it is not created, but read, changed or deleted.
        Forbidden: the caller is not authenticated.
        BadRequest, Invalid, UnsupportedMediaType: the body is no such review.
    """
    info = _BY_PATH.get(request.path)
    if info is None:
        return None
    if request.method != "POST":
        raise MethodNotAllowed(f"{info.plural} can be asked to create, and are not stored")
    if not authz.is_authenticated(user):
        raise Forbidden(
            f'{info.qualified} is forbidden: User "{user.name}" cannot create resource '
            f'"{info.plural}" in API group "{info.group}" at the cluster scope',
            kind=info.plural,
            group=info.group,
        )
    document, warnings = read_request_object(request, info.schema)
    head = {"apiVersion": info.api_version, "kind": info.kind}
    for field, wanted in head.items():
        if document.get(field, wanted) != wanted:
            raise BadRequest(f"{field}: must be {wanted}, not {document[field]!r}")
    document.pop("status", None)  # typed clients send an empty one
    causes = schema.check_definition(document, info.schema)
    if causes:
        raise _invalid(info, causes)
    meta = document.get("metadata") or {}
    spec = document.get("spec") or {}
    body: Document = {**head, "metadata": {"creationTimestamp": None, **meta}}
    if spec:
        body["spec"] = spec
    body["status"] = _ANSWERS[info.kind](user, spec)
    return Response(201, codec.encode(body), headers=warning_headers(warnings))


def _invalid(info: KindInfo[ReviewResource], causes: list[Cause]) -> Invalid:
    listed = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:10])
    return Invalid(f"{info.kind} is invalid: {listed}", kind=info.kind, causes=causes)


def _who(user: User, _spec: Document) -> Document:
    return {"userInfo": {"username": user.name, "groups": list(user.groups)}}


def _may(user: User, spec: Document) -> Document:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid(SELFSUBJECTACCESSREVIEW, [Cause("FieldValueInvalid", text, "spec")])
    if path is not None:
        return {"allowed": authz.allows_path(user, path.get("path") or "")}
    return {"allowed": _may_resource(user, resource or {})}


def _may_resource(user: User, asked: Document) -> bool:
    plural, group = str(asked.get("resource") or ""), str(asked.get("group") or "")
    verb = str(asked.get("verb") or "")
    if verb in VERBS and any((plural, group) == (info.plural, info.group) for info in KINDS):
        return authz.is_authenticated(user)
    return authz.allows_resource(user, verb, f"{plural}.{group}" if group else plural)


def _rules(user: User, spec: Document) -> Document:
    if not spec.get("namespace"):
        raise BadRequest("spec.namespace: no namespace on request")
    resources: list[Document] = [
        {"verbs": list(VERBS), "apiGroups": [info.group], "resources": [info.plural]}
        for info in KINDS
    ]
    paths: list[Document] = []
    for rule in authz.rules_of(user):
        for name in rule.resources:
            plural, _, group = name.partition(".")
            groups = [authz.ANY] if plural == authz.ANY else [group]
            resources.append(
                {"verbs": list(rule.verbs), "apiGroups": groups, "resources": [plural]}
            )
        for path in rule.paths:
            urls = [path] if path == authz.ANY else [path, f"{path}/*"]
            paths.append({"verbs": list(rule.verbs), "nonResourceURLs": urls})
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


_ANSWERS: dict[str, Callable[[User, dict[str, Any]], Document]] = {
    SELFSUBJECTREVIEW.kind: _who,
    SELFSUBJECTACCESSREVIEW.kind: _may,
    SELFSUBJECTRULESREVIEW.kind: _rules,
}
