"""Questions about users: who one is, what one may do, and whom a token stands for.

Kinds that are created and never stored: the answer to the create is the object with its status.
"""

import re
from collections.abc import Callable

from grange.api import codec, schema
from grange.api.http import Request, Response, User
from grange.api.meta import Document, Resource
from grange.api.scheme import KindInfo
from grange.api.status import BadRequest, Cause, Invalid, MethodNotAllowed
from grange.apiserver.authorization.authorizer import (
    AuthorizationAttributes,
    Authorizer,
    Opinion,
    check,
    create_attributes,
    path_attributes,
)
from grange.apiserver.authorization.rbac_authorizer import RBACAuthorizer
from grange.apiserver.request_context import read_request_object, warning_headers
from grange.apiserver.token_reviews import TokenReviewer

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
VERBS = ("create",)


class ReviewResource(Resource, frozen=True):
    """Any of them; the server alone reads them."""


def _kind(group: str, kind: str, *, namespaced: bool = False) -> KindInfo[ReviewResource]:
    return KindInfo(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        view=ReviewResource,
        schema=f"io.k8s.api.{group.partition('.')[0]}.v1.{kind}",
        namespaced=namespaced,
        has_status=False,
    )


SELFSUBJECTREVIEW = _kind(_AUTHENTICATION, "SelfSubjectReview")
SELFSUBJECTACCESSREVIEW = _kind(_AUTHORIZATION, "SelfSubjectAccessReview")
SELFSUBJECTRULESREVIEW = _kind(_AUTHORIZATION, "SelfSubjectRulesReview")
SUBJECTACCESSREVIEW = _kind(_AUTHORIZATION, "SubjectAccessReview")
LOCALSUBJECTACCESSREVIEW = _kind(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True)
TOKENREVIEW = _kind(_AUTHENTICATION, "TokenReview")
KINDS = (
    SELFSUBJECTREVIEW,
    SELFSUBJECTACCESSREVIEW,
    SELFSUBJECTRULESREVIEW,
    SUBJECTACCESSREVIEW,
    LOCALSUBJECTACCESSREVIEW,
    TOKENREVIEW,
)

_BY_PATH = {info.path(): info for info in KINDS if not info.namespaced}
_LOCAL = re.compile(LOCALSUBJECTACCESSREVIEW.path("NAME").replace("NAME", "([^/]+)"))


class Reviews:
    """Answers them.

    Args:
        authorizer: decides who may ask, and is what they are about.
        rbac: lists the rules of users.
        tokens: finds the users of tokens.
    """

    def __init__(self, authorizer: Authorizer, rbac: RBACAuthorizer, tokens: TokenReviewer) -> None:
        self._authorizer = authorizer
        self._rbac = rbac
        self._answers: dict[str, Callable[[User, Document], Document]] = {
            SELFSUBJECTREVIEW.kind: _user_info,
            SELFSUBJECTACCESSREVIEW.kind: self._access,
            SUBJECTACCESSREVIEW.kind: self._access_of_subject,
            LOCALSUBJECTACCESSREVIEW.kind: self._access_of_subject,
            TOKENREVIEW.kind: lambda _, spec: tokens.review(spec),
            SELFSUBJECTRULESREVIEW.kind: self._rules,
        }

    def admits(self, request: Request, user: User) -> bool:
        """Whether reviews are created at the path, by a user who may create them.

        Raises:
            MethodNotAllowed: it is not created, but read, changed or deleted.
            Forbidden: the user may not.
        """
        return self._admitted(request, user) is not None

    def serve(self, request: Request, user: User) -> Response | None:
        """The answer to a review; None for any other path.

        Raises:
            MethodNotAllowed, Forbidden: as for ``admits``.
            BadRequest, Invalid, UnsupportedMediaType: the body is no such review.
        """
        admitted = self._admitted(request, user)
        if admitted is None:
            return None
        info, namespace = admitted
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
        if info.namespaced:
            meta = {**meta, "namespace": _namespace(meta, spec, namespace)}
        body: Document = {**head, "metadata": {"creationTimestamp": None, **meta}}
        if spec:
            body["spec"] = spec
        body["status"] = self._answers[info.kind](user, spec)
        return Response(201, codec.encode(body), headers=warning_headers(warnings))

    def _admitted(
        self, request: Request, user: User
    ) -> tuple[KindInfo[ReviewResource], str] | None:
        info, namespace = _BY_PATH.get(request.path), ""
        if info is None:
            local = _LOCAL.fullmatch(request.path)
            if local is None:
                return None
            info, namespace = LOCALSUBJECTACCESSREVIEW, local[1]
        if request.method != "POST":
            raise MethodNotAllowed(f"{info.plural} can be asked to create, and are not stored")
        check(self._authorizer, create_attributes(user, info, namespace))
        return info, namespace

    def _access_of_subject(self, _user: User, spec: Document) -> Document:
        name, groups = spec.get("user") or "", spec.get("groups") or ()
        if not name and not groups:
            text = "at least one of user or group must be specified"
            raise _invalid(SUBJECTACCESSREVIEW, [Cause("FieldValueInvalid", text, "spec.user")])
        return self._access(User(name, tuple(groups)), spec)

    def _access(self, user: User, spec: Document) -> Document:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (resource is None) == (path is None):
            text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise _invalid(SELFSUBJECTACCESSREVIEW, [Cause("FieldValueInvalid", text, "spec")])
        if path is not None:
            asked = path_attributes(user, path.get("verb") or "", path.get("path") or "")
        else:
            asked = _resource_attributes(user, resource or {})
        decision = self._authorizer.authorize(asked)
        status: Document = {"allowed": decision.is_allowed}
        if decision.opinion is Opinion.DENIED:
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        return status

    def _rules(self, user: User, spec: Document) -> Document:
        namespace = spec.get("namespace")
        if not namespace:
            raise BadRequest("spec.namespace: no namespace on request")
        resources: list[Document] = []
        paths: list[Document] = []
        for rule in self._rbac.rules_of(user, namespace):
            verbs = list(rule.verbs)
            if rule.resources:
                found: Document = {
                    "verbs": verbs,
                    "apiGroups": list(rule.api_groups),
                    "resources": list(rule.resources),
                }
                if rule.resource_names:
                    found["resourceNames"] = list(rule.resource_names)
                resources.append(found)
            if rule.non_resource_urls:
                paths.append({"verbs": verbs, "nonResourceURLs": list(rule.non_resource_urls)})
        return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def _invalid(info: KindInfo[ReviewResource], causes: list[Cause]) -> Invalid:
    listed = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:10])
    return Invalid(f"{info.kind} is invalid: {listed}", kind=info.kind, causes=causes)


def _namespace(meta: Document, spec: Document, namespace: str) -> str:
    """The namespace of a local review, which asks about that namespace alone."""
    given = meta.get("namespace") or namespace
    asked = spec.get("resourceAttributes")
    if given != namespace:
        raise BadRequest(f"metadata.namespace: must be {namespace}, that of the path, not {given}")
    if asked is None:
        text = "a local review is about a resource: nonResourceAttributes must not be specified"
        field = "spec.resourceAttributes"
    elif (asked.get("namespace") or "") != namespace:
        text = f"must be {namespace}, the namespace of the review"
        field = "spec.resourceAttributes.namespace"
    else:
        return namespace
    raise _invalid(LOCALSUBJECTACCESSREVIEW, [Cause("FieldValueInvalid", text, field)])


def _user_info(user: User, _spec: Document) -> Document:
    return {"userInfo": {"username": user.name, "groups": list(user.groups)}}


def _resource_attributes(user: User, asked: Document) -> AuthorizationAttributes:
    return AuthorizationAttributes(
        user,
        asked.get("verb") or "",
        asked.get("group") or "",
        asked.get("resource") or "",
        asked.get("subresource") or "",
        asked.get("namespace") or "",
        asked.get("name") or "",
    )
