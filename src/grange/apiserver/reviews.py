"""Questions that a caller asks about itself: who it is, and what it may do.

Kinds that are created and never stored: the answer to the create is the object with its status.
"""

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


class Reviews:
    """Answers them.

    Args:
        authorizer: decides who may ask, and is what they are about.
        rbac: lists the rules of users.
    """

    def __init__(self, authorizer: Authorizer, rbac: RBACAuthorizer) -> None:
        self._authorizer = authorizer
        self._rbac = rbac
        self._answers: dict[str, Callable[[User, Document], Document]] = {
            SELFSUBJECTREVIEW.kind: _user_info,
            SELFSUBJECTACCESSREVIEW.kind: self._access,
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
        info = self._admitted(request, user)
        if info is None:
            return None
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
        body["status"] = self._answers[info.kind](user, spec)
        return Response(201, codec.encode(body), headers=warning_headers(warnings))

    def _admitted(self, request: Request, user: User) -> KindInfo[ReviewResource] | None:
        info = _BY_PATH.get(request.path)
        if info is None:
            return None
        if request.method != "POST":
            raise MethodNotAllowed(f"{info.plural} can be asked to create, and are not stored")
        check(self._authorizer, create_attributes(user, info))
        return info

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
