"""Evaluation of roles against a naive reference, over random roles, bindings and requests."""

from typing import Any

from hypothesis import given, strategies as st

from grange.api.http import User
from grange.apiserver.authorization.authorizer import AuthorizationAttributes
from grange.apiserver.authorization.policy_rules import (
    COMPARISONS_MAX,
    SHOWN_MAX,
    PolicyRule,
    allows,
    uncovered,
)
from grange.apiserver.authorization.role_index import (
    RoleIndex,
    RoleName,
    RoleReference,
    RoleSubject,
    StoredBinding,
    StoredRole,
    _Meta,
)

VERBS, GROUPS, NAMES = ("get", "list", "*"), ("", "apps", "*"), ("a", "b")
RESOURCES = ("pods", "pods/log", "*/log", "*", "secrets")
PATHS = ("/healthz", "/healthz/*", "/metrics", "*")
NAMESPACES = ("", "one", "two")
USERS = tuple(
    User(name, groups)
    for name in ("bob", "eve", "system:serviceaccount:one:bot")
    for groups in ((), ("team",), ("team", "ops"))
)


def some(values: tuple[str, ...], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=2, unique=True).map(tuple)


resource_rules = st.builds(
    PolicyRule, some(VERBS, 1), some(GROUPS, 1), some(RESOURCES, 1), some(NAMES)
)
path_rules = st.builds(
    lambda verbs, urls: PolicyRule(verbs, non_resource_urls=urls), some(VERBS, 1), some(PATHS, 1)
)
rules = st.lists(st.one_of(resource_rules, path_rules), max_size=3).map(tuple)
metas = st.builds(_Meta, st.sampled_from(NAMES), st.sampled_from(NAMESPACES))
subjects = st.one_of(
    st.builds(RoleSubject, st.just("User"), st.sampled_from(("bob", "eve"))),
    st.builds(RoleSubject, st.just("Group"), st.sampled_from(("team", "ops"))),
    st.builds(
        RoleSubject, st.just("ServiceAccount"), st.just("bot"), st.sampled_from(("one", "two"))
    ),
)
roles = st.builds(StoredRole, metas, rules)
bindings = st.builds(
    StoredBinding,
    st.builds(RoleReference, st.sampled_from(("Role", "ClusterRole")), st.sampled_from(NAMES)),
    metas,
    st.lists(subjects, max_size=2).map(tuple),
)
requests = st.one_of(
    st.builds(
        AuthorizationAttributes,
        st.sampled_from(USERS),
        st.sampled_from(("get", "list", "create")),
        st.sampled_from(("", "apps")),
        st.sampled_from(("pods", "secrets")),
        st.sampled_from(("", "log")),
        st.sampled_from(NAMESPACES),
        st.sampled_from(("", "a", "c")),
    ),
    st.builds(
        lambda user, path: AuthorizationAttributes(user, "get", path=path),
        st.sampled_from(USERS),
        st.sampled_from(("/healthz", "/healthz/x", "/metrics", "/other")),
    ),
)
removed = st.builds(RoleName, st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
changes = st.lists(
    st.one_of(
        st.tuples(st.just("set_role"), roles),
        st.tuples(st.just("set_binding"), bindings),
        st.tuples(st.just("remove_role"), removed),
        st.tuples(st.just("remove_binding"), removed),
    ),
    max_size=20,
)


class Reference:
    """Looks at every binding, each time."""

    def __init__(self) -> None:
        self.roles: dict[RoleName, StoredRole] = {}
        self.bindings: dict[RoleName, StoredBinding] = {}

    def apply(self, verb: str, value: Any) -> None:
        action, _, kind = verb.partition("_")
        kept: dict[RoleName, Any] = self.roles if kind == "role" else self.bindings
        if action == "set":
            kept[RoleName(value.metadata.namespace, value.metadata.name)] = value
        else:
            kept.pop(value, None)

    def allows(self, asked: AuthorizationAttributes) -> bool:
        user = asked.user
        for (namespace, _), binding in self.bindings.items():
            named = any(
                (subject.kind == "User" and subject.name == user.name)
                or (subject.kind == "Group" and subject.name in user.groups)
                or (
                    subject.kind == "ServiceAccount"
                    and user.name == f"system:serviceaccount:{subject.namespace}:{subject.name}"
                )
                for subject in binding.subjects or ()
            )
            where = namespace if binding.role_ref.kind == "Role" else ""
            role = self.roles.get(RoleName(where, binding.role_ref.name))
            granted = role.rules if role is not None and named else ()
            if namespace in ("", asked.namespace) and any(
                allows(rule, asked) for rule in granted or ()
            ):
                return True
        return False


@given(changes, st.lists(requests, min_size=1, max_size=10))
def test_index_decides_as_the_reference(
    made: list[tuple[str, Any]], asked: list[AuthorizationAttributes]
) -> None:
    index, reference = RoleIndex(), Reference()
    for verb, value in made:
        getattr(index, verb)(value)
        reference.apply(verb, value)
    for each in asked:
        found = index.roles_of(each.user, each.namespace)
        allowed = any(allows(rule, each) for bound in found for rule in bound.rules or ())
        assert allowed is reference.allows(each)


@given(rules, rules, st.lists(requests, min_size=1, max_size=10))
def test_covered_rules_allow_nothing_new(
    held: tuple[PolicyRule, ...],
    wanted: tuple[PolicyRule, ...],
    asked: list[AuthorizationAttributes],
) -> None:
    lacking = uncovered(held, wanted)
    for each in asked:
        new = any(allows(rule, each) for rule in wanted)
        if new and not any(allows(rule, each) for rule in held):
            assert lacking
    if len(lacking) < SHOWN_MAX:  # else it is not the whole list
        assert uncovered((*held, *lacking), wanted) == []
    assert uncovered(wanted, wanted) == []


def test_comparing_rules_is_bounded() -> None:
    many = tuple(f"x{number}" for number in range(1000))
    wanted = PolicyRule(many, many, many)
    held = [PolicyRule(("get",), (name,), ("*",)) for name in many]
    assert len(held) * 2 < COMPARISONS_MAX
    found = uncovered([*held, PolicyRule(many, ("x0",), many)], [wanted])
    assert found[-1] == wanted
