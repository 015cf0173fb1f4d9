"""What a user may do: one table, read from the top, first match allows; nothing matching forbids.

This slice knows administrators, everybody who is authenticated, and everybody else. Roles as
objects come in with a later issue and replace the table's use, not its place.
"""

from dataclasses import dataclass

from grange.api.status import Forbidden
from grange.api.wire import User
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


_HEALTH = ("/healthz", "/livez", "/readyz", "/version")
RULES: tuple[Rule, ...] = (
    Rule("system:masters", resources=(ANY,), paths=(ANY,)),
    Rule("system:authenticated", paths=(*_HEALTH, "/api", "/apis", "/openapi")),
    Rule("system:unauthenticated", paths=_HEALTH),
)


def check_resource(user: User, target: Target) -> None:
    """Let the request pass.

    Raises:
        Forbidden: no rule allows it; the message names user, verb, resource and scope.
    """
    info = target.info
    for rule in RULES:
        if (
            rule.group in user.groups
            and (ANY in rule.verbs or target.verb in rule.verbs)
            and (ANY in rule.resources or info.qualified in rule.resources)
        ):
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
    for rule in RULES:
        if rule.group in user.groups and any(
            prefix in {ANY, path} or path.startswith(f"{prefix}/") for prefix in rule.paths
        ):
            return
    raise Forbidden(
        f'forbidden: User "{user.name}" cannot {method.lower()} path "{path}"', kind="", name=""
    )
