"""The seam of authorization: attributes of a request in, a decision out."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from grange.api.http import User
from grange.api.kinds import NAMESPACE
from grange.api.scheme import AnyKind
from grange.api.selectors import Fields, SelectorError
from grange.api.status import Forbidden
from grange.apiserver.request_info import Target

MASTERS = "system:masters"
"""The group whose members may do everything."""


_PATH_VERBS = {"HEAD": "get"}
_NO_QUERY: Mapping[str, str] = {}


class Opinion(Enum):
    """What an authorizer decides; a request on which none has an opinion is refused."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NONE = "no opinion"


class AuthorizationDecision(msgspec.Struct, frozen=True):
    """The decision on a request.

    Attributes:
        opinion: whether it is allowed.
        reason: why, for the message of a refusal and for reviews; may be empty.
    """

    opinion: Opinion
    reason: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether the request may be served."""
        return self.opinion is Opinion.ALLOWED


ALLOWED = AuthorizationDecision(Opinion.ALLOWED)
NO_OPINION = AuthorizationDecision(Opinion.NONE)


class AuthorizationAttributes(msgspec.Struct, frozen=True, gc=False):
    """What decides on a request.

    Attributes:
        user: who sends it.
        verb: of the API, e.g. ``list``; for a path the HTTP method in lower case.
        group: API group of the resource; empty for the core group.
        resource: plural name.
        subresource: empty for the object itself.
        namespace: empty for cluster-scoped kinds and for all namespaces; that of a Namespace is its
            own name.
        name: empty for collections, and for objects that are created.
        path: of a request that is about no resource; empty for those that are.
        fields: the field selector of a collection; empty for all its objects.
    """

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: str = ""

    def selected(self, path: str) -> str:
        """The only value of a field that a request selects; empty for any."""
        try:
            return Fields.parse(self.fields).exact(path) or ""
        except SelectorError:
            return ""


class Authorizer(Protocol):
    """One source of decisions."""

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        """Decide on a request; must not await."""


class Superusers:
    """Allows the members of ``system:masters`` everything."""

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        """Allow a superuser's request; there is no opinion on others."""
        return ALLOWED if MASTERS in attributes.user.groups else NO_OPINION


class AuthorizerChain:
    """Asks authorizers in order; the first that has an opinion decides.

    Args:
        authorizers: in the order in which they are asked.
    """

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        """The first opinion; without one, the reasons of all."""
        reasons: list[str] = []
        for authorizer in self._authorizers:
            decision = authorizer.authorize(attributes)
            if decision.opinion is not Opinion.NONE:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return AuthorizationDecision(Opinion.NONE, "; ".join(reasons))


def resource_attributes(
    user: User, target: Target, query: Mapping[str, str] = _NO_QUERY
) -> AuthorizationAttributes:
    """The attributes of a request that is about a resource."""
    info = target.info
    if target.subresource and not target.name:  # the bindings of many pods
        return AuthorizationAttributes(
            user, target.verb, info.group, target.resource, "", target.namespace
        )
    return AuthorizationAttributes(
        user,
        target.verb,
        info.group,
        info.plural,
        target.subresource,
        target.name if info is NAMESPACE else target.namespace,
        target.name,
        fields=query.get("fieldSelector") or "",
    )


def path_attributes(user: User, method: str, path: str) -> AuthorizationAttributes:
    """The attributes of a request that is about a path."""
    return AuthorizationAttributes(user, _PATH_VERBS.get(method) or method.lower(), path=path)


def create_attributes(user: User, info: AnyKind, namespace: str = "") -> AuthorizationAttributes:
    """The attributes of a request that creates an object of a kind."""
    return AuthorizationAttributes(user, "create", info.group, info.plural, namespace=namespace)


def check(authorizer: Authorizer, attributes: AuthorizationAttributes) -> None:
    """Accept a request that is allowed.

    Raises:
        Forbidden: it is not; the message has user, verb, resource and scope, as Kubernetes' has.
    """
    decision = authorizer.authorize(attributes)
    if decision.opinion is not Opinion.ALLOWED:
        raise forbidden(attributes, decision.reason)


def forbidden(attributes: AuthorizationAttributes, reason: str = "") -> Forbidden:
    """The error for a request that is not allowed."""
    because = f": {reason}" if reason else ""
    cannot = f'User "{attributes.user.name}" cannot {attributes.verb}'
    if attributes.path:
        return Forbidden(f'forbidden: {cannot} path "{attributes.path}"{because}', kind="", name="")
    group, plural, name = attributes.group, attributes.resource, attributes.name
    qualified = f"{plural}.{group}" if group else plural
    subject = f'{qualified} "{name}"' if name else qualified
    resource = f"{plural}/{attributes.subresource}" if attributes.subresource else plural
    space = attributes.namespace
    scope = f'in the namespace "{space}"' if space else "at the cluster scope"
    return Forbidden(
        f'{subject} is forbidden: {cannot} resource "{resource}" in API group "{group}" '
        f"{scope}{because}",
        kind=plural,
        name=name,
        group=group,
    )
