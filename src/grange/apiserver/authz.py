"""What a user may do: one table, read from the top, first match allows; nothing matching forbids.

This slice knows administrators, everybody who is authenticated, and everybody else. Roles as
objects come in with a later issue and replace the table's use, not its place.
"""

from dataclasses import dataclass

from grange.api.http import User
from grange.api.status import Forbidden
from grange.apiserver.request_info import Target

ANY = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """One group's right.

    Attributes:
        group: who.
        verbs: API verbs; ``*`` is every one.
        resources: ``plural.group`` names; ``*`` is every one; empty for none.
        paths: prefixes of paths outside resources; ``*`` is every one.
    """

    group: str
    verbs: tuple[str, ...] = (ANY,)
    resources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


_UNAUTHENTICATED = "system:unauthenticated"
_HEALTH = ("/healthz", "/livez", "/readyz", "/version")
RULES: tuple[Rule, ...] = (
    Rule("system:masters", resources=(ANY,), paths=(ANY,)),
    Rule("system:authenticated", paths=(*_HEALTH, "/api", "/apis", "/openapi")),
    Rule(_UNAUTHENTICATED, paths=_HEALTH),
)


def rules_of(user: User) -> list[Rule]:
    """The rules that are about the user."""
    return [rule for rule in RULES if rule.group in user.groups]


def is_authenticated(user: User) -> bool:
    """Whether the server knows who it is; an administrator in this process counts, too."""
    return any(rule.group != _UNAUTHENTICATED for rule in rules_of(user))


def allows_resource(user: User, verb: str, qualified: str) -> bool:
    """Whether the user may do this with resources of this kind, which is ``plural.group``."""
    for rule in RULES:
        if (
            rule.group in user.groups
            and (ANY in rule.verbs or verb in rule.verbs)
            and (ANY in rule.resources or qualified in rule.resources)
        ):
            return True
    return False


def allows_path(user: User, path: str) -> bool:
    """Whether the user may ask for this path, which is none of a resource."""
    return any(
        prefix in {ANY, path} or path.startswith(f"{prefix}/")
        for rule in rules_of(user)
        for prefix in rule.paths
    )


def check_resource(user: User, target: Target) -> None:
    """Let the request pass.

    Raises:
        Forbidden: no rule allows it; the message names user, verb, resource and scope.
    """
    info = target.info
    if allows_resource(user, target.verb, info.qualified):
        return
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    subject = f'{info.qualified} "{target.name}"' if target.name else info.qualified
    raise Forbidden(
        f'{subject} is forbidden: User "{user.name}" cannot {target.verb} resource '
        f'"{target.resource}" in API group "{info.group}" {scope}',
        kind=info.plural,
        name=target.name,
        group=info.group,
    )


def check_path(user: User, method: str, path: str) -> None:
    """Let a request outside resources pass.

    Raises:
        Forbidden: no rule allows it.
    """
    if allows_path(user, path):
        return
    raise Forbidden(
        f'forbidden: User "{user.name}" cannot {method.lower()} path "{path}"', kind="", name=""
    )
