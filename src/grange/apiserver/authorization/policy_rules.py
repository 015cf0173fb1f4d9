"""The rules of roles: what one allows, and which rules cover which."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import msgspec

from grange.apiserver.authorization.authorizer import AuthorizationAttributes

ANY = "*"
_COLLECTIONS = frozenset({"list", "watch", "deletecollection"})
SHOWN_MAX = 20
COMPARISONS_MAX = 100_000
"""Comparing rules holds the event loop; roles may be written by users who are not trusted."""


class PolicyRule(
    msgspec.Struct,
    frozen=True,
    rename={
        "api_groups": "apiGroups",
        "resource_names": "resourceNames",
        "non_resource_urls": "nonResourceURLs",
    },
):
    """One rule of a role; what it allows adds to what others allow.

    Attributes:
        verbs: ``*`` is every one.
        api_groups: of the resources; ``*`` is every one.
        resources: ``plural`` or ``plural/subresource``; ``*`` is every one, ``*/subresource`` the
            subresource of every kind.
        resource_names: of the only objects; empty for all.
        non_resource_urls: paths outside resources; a ``*`` at the end is any rest.
    """

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()


def allows(rule: PolicyRule, attributes: AuthorizationAttributes) -> bool:
    """Whether a rule allows a request."""
    if attributes.verb not in rule.verbs and ANY not in rule.verbs:
        return False
    if attributes.path:
        return any(is_path_matched(url, attributes.path) for url in rule.non_resource_urls)
    if attributes.group not in rule.api_groups and ANY not in rule.api_groups:
        return False
    if not _names_resource(rule, attributes.resource, attributes.subresource):
        return False
    return not rule.resource_names or _name(attributes) in rule.resource_names


def _name(attributes: AuthorizationAttributes) -> str:
    """The only object that a request is about, also if it selects it from a collection; else empty."""
    if not attributes.name and attributes.fields and attributes.verb in _COLLECTIONS:
        return attributes.selected("metadata.name")
    return attributes.name


def _names_resource(rule: PolicyRule, resource: str, subresource: str) -> bool:
    if ANY in rule.resources:
        return True
    if not subresource:
        return resource in rule.resources
    return f"{resource}/{subresource}" in rule.resources or f"*/{subresource}" in rule.resources


def is_path_matched(pattern: str, path: str) -> bool:
    """Whether a ``nonResourceURLs`` entry stands for the path."""
    if pattern.endswith(ANY):
        return path.startswith(pattern.rstrip(ANY))
    return pattern == path


def uncovered(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The parts of rules that other rules do not allow.

    Args:
        held: the rules that a user has.
        wanted: the rules that are to be given.

    Returns:
        Rules about one verb and one resource or path each, at most ``SHOWN_MAX``. What is left after
        ``COMPARISONS_MAX`` comparisons counts as not allowed; its first rule is returned whole.
    """
    found: list[PolicyRule] = []
    compared = 0
    for rule in wanted:
        compared += len(held)
        if any(_covers(other, rule) for other in held):
            continue
        for part in _parts(rule):
            compared += len(held)
            if compared > COMPARISONS_MAX:
                return [*found, rule]
            if not any(_covers(other, part) for other in held):
                found.append(part)
                if len(found) >= SHOWN_MAX:
                    return found
    return found


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    lists = [
        [*dict.fromkeys(values)]
        for values in (rule.verbs, rule.api_groups, rule.resources, rule.resource_names)
    ]
    urls = [*dict.fromkeys(rule.non_resource_urls)]
    verbs, groups, resources, names = lists
    for verb in verbs:
        for group, resource, name in product(groups, resources, names or [""]):
            yield PolicyRule((verb,), (group,), (resource,), (name,) if names else ())
        for url in urls:
            yield PolicyRule((verb,), non_resource_urls=(url,))


def _covers(held: PolicyRule, wanted: PolicyRule) -> bool:
    """Whether one rule allows all that another one does."""
    return (
        _includes(held.verbs, wanted.verbs)
        and _includes(held.api_groups, wanted.api_groups)
        and _includes_resources(held.resources, wanted.resources)
        and _includes_names(held.resource_names, wanted.resource_names)
        and all(_includes_path(held.non_resource_urls, url) for url in wanted.non_resource_urls)
    )


def _includes(held: Sequence[str], wanted: Iterable[str]) -> bool:
    return ANY in held or {*held} >= {*wanted}


def _includes_resources(held: Sequence[str], wanted: Iterable[str]) -> bool:
    if ANY in held:
        return True
    known = {*held}
    for resource in wanted:
        _, slash, part = resource.partition("/")
        if resource not in known and not (slash and f"{ANY}/{part}" in known):
            return False
    return True


def _includes_names(held: Sequence[str], wanted: Sequence[str]) -> bool:
    return not held or (bool(wanted) and {*held} >= {*wanted})


def _includes_path(held: Iterable[str], wanted: str) -> bool:
    return any(is_path_matched(pattern, wanted) for pattern in held)
