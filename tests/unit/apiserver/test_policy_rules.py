"""What rules of roles allow."""

import pytest

from grange.api.http import User
from grange.apiserver.authorization.authorizer import AuthorizationAttributes
from grange.apiserver.authorization.policy_rules import PolicyRule, allows

USER = User("bob")


def rule(verbs: str, groups: str, resources: str, names: str = "") -> PolicyRule:
    return PolicyRule((verbs,), (groups,), (resources,), tuple(names.split()))


def asked(verb: str, group: str, resource: str, name: str = "") -> AuthorizationAttributes:
    plural, _, part = resource.partition("/")
    return AuthorizationAttributes(USER, verb, group, plural, part, "default", name)


@pytest.mark.parametrize(
    ("given", "request_", "allowed"),
    [
        (rule("get", "", "pods"), asked("get", "", "pods"), True),
        (rule("get", "", "pods"), asked("list", "", "pods"), False),
        (rule("*", "", "pods"), asked("list", "", "pods"), True),
        (rule("get", "", "pods"), asked("get", "apps", "pods"), False),
        (rule("get", "*", "pods"), asked("get", "apps", "pods"), True),
        (rule("get", "", "pods"), asked("get", "", "pods/log"), False),
        (rule("get", "", "pods/log"), asked("get", "", "pods/log"), True),
        (rule("get", "", "pods/log"), asked("get", "", "pods"), False),
        (rule("get", "", "*/log"), asked("get", "", "pods/log"), True),
        (rule("get", "", "*/log"), asked("get", "", "pods/status"), False),
        (rule("get", "", "*"), asked("get", "", "pods/status"), True),
        (rule("get", "", "pods", "a b"), asked("get", "", "pods", "b"), True),
        (rule("get", "", "pods", "a b"), asked("get", "", "pods", "c"), False),
        (rule("list", "", "pods", "a"), asked("list", "", "pods"), False),
        (rule("*", "*", "*"), AuthorizationAttributes(USER, "get", path="/metrics"), False),
    ],
)
def test_rule_allows_resources(
    given: PolicyRule, request_: AuthorizationAttributes, allowed: bool
) -> None:
    assert allows(given, request_) is allowed


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/healthz/*", "/healthz/etcd", True),
        ("/healthz/*", "/healthz", False),
        ("*", "/metrics", True),
        ("/he*", "/healthz", True),
    ],
)
def test_rule_allows_paths(url: str, path: str, allowed: bool) -> None:
    given = PolicyRule(("get",), non_resource_urls=(url,))
    assert allows(given, AuthorizationAttributes(USER, "get", path=path)) is allowed
    assert not allows(given, AuthorizationAttributes(USER, "post", path=path))
