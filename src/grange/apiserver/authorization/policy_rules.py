"""The rules of roles: what one allows, and which rules cover which."""

import msgspec

from grange.apiserver.authorization.authorizer import AuthorizationAttributes

ANY = "*"


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
    return not rule.resource_names or attributes.name in rule.resource_names


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
