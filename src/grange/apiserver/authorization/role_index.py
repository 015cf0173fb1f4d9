"""Roles and bindings, indexed by the subjects that they are about."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from grange.api.http import User
from grange.api.validation import rbac
from grange.apiserver.account_tokens import user_name
from grange.apiserver.authorization.policy_rules import PolicyRule


class RoleSubject(msgspec.Struct, frozen=True):
    """Whom a binding is about: a User, a Group or a ServiceAccount."""

    kind: str
    name: str
    namespace: str = ""

    def user_name(self, namespace: str) -> str:
        """The name of the user that an account is; of a binding in this namespace."""
        return user_name(self.namespace or namespace, self.name)

    def __str__(self) -> str:
        name = f"{self.name}/{self.namespace}" if self.kind == rbac.SERVICEACCOUNT else self.name
        return f'{self.kind} "{name}"'


class RoleReference(msgspec.Struct, frozen=True):
    """The role of a binding."""

    kind: str
    name: str


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class StoredRole(msgspec.Struct, frozen=True):
    """What counts of a Role or ClusterRole."""

    metadata: _Meta = _Meta()
    rules: tuple[PolicyRule, ...] | None = ()


class StoredBinding(msgspec.Struct, frozen=True):
    """What counts of a RoleBinding or ClusterRoleBinding."""

    role_ref: RoleReference = msgspec.field(name="roleRef")
    metadata: _Meta = _Meta()
    subjects: tuple[RoleSubject, ...] | None = ()

    @property
    def role(self) -> "RoleName":
        """The role that it refers to."""
        namespace = self.metadata.namespace if self.role_ref.kind == rbac.ROLE else ""
        return RoleName(namespace, self.role_ref.name)

    def __str__(self) -> str:
        name, namespace = self.metadata.name, self.metadata.namespace
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        full = f"{name}/{namespace}" if namespace else name
        return f'{kind} "{full}" of {self.role_ref.kind} "{self.role_ref.name}"'


class RoleName(NamedTuple):
    """Namespace, empty for cluster-scoped kinds, and name."""

    namespace: str
    name: str


class BoundRole(NamedTuple):
    """A role that a user has.

    Attributes:
        binding: what gives it.
        subject: as whom the user has it.
        rules: of the role; None where there is no such role.
    """

    binding: StoredBinding
    subject: RoleSubject
    rules: tuple[PolicyRule, ...] | None


class RoleIndex:
    """Which roles a user has, without looking at the bindings of others."""

    def __init__(self) -> None:
        self._roles: dict[RoleName, tuple[PolicyRule, ...]] = {}
        self._bindings: dict[RoleName, StoredBinding] = {}
        # (namespace, kind, name) of users and groups → bindings in that namespace
        self._by_subject: dict[tuple[str, str, str], dict[RoleName, RoleSubject]] = {}

    def set_role(self, role: StoredRole) -> None:
        """Add a role, or replace it."""
        meta = role.metadata
        self._roles[RoleName(meta.namespace, meta.name)] = role.rules or ()

    def remove_role(self, name: RoleName) -> None:
        """Forget a role; does nothing for one that is not there."""
        self._roles.pop(name, None)

    def set_binding(self, binding: StoredBinding) -> None:
        """Add a binding, or replace it."""
        name = RoleName(binding.metadata.namespace, binding.metadata.name)
        self.remove_binding(name)
        self._bindings[name] = binding
        for key, subject in _keys(binding):
            self._by_subject.setdefault(key, {})[name] = subject

    def remove_binding(self, name: RoleName) -> None:
        """Forget a binding; does nothing for one that is not there."""
        binding = self._bindings.pop(name, None)
        if binding is None:
            return
        for key, _subject in _keys(binding):
            found = self._by_subject.get(key)
            if found is not None:
                found.pop(name, None)
                if not found:
                    del self._by_subject[key]

    def rules(self, name: RoleName) -> tuple[PolicyRule, ...] | None:
        """The rules of a role; None where there is no such role."""
        return self._roles.get(name)

    def roles_of(self, user: User, namespace: str) -> Iterator[BoundRole]:
        """The roles that a user has in the whole cluster, then those in the namespace."""
        for scope in ("", namespace) if namespace else ("",):
            yield from self._bound(scope, rbac.USER, user.name)
            for group in user.groups:
                yield from self._bound(scope, rbac.USER_GROUP, group)

    def _bound(self, scope: str, kind: str, name: str) -> Iterator[BoundRole]:
        for binding_name, subject in self._by_subject.get((scope, kind, name), {}).items():
            binding = self._bindings[binding_name]
            yield BoundRole(binding, subject, self._roles.get(binding.role))


def _keys(binding: StoredBinding) -> Iterator[tuple[tuple[str, str, str], RoleSubject]]:
    namespace = binding.metadata.namespace
    for subject in binding.subjects or ():
        if subject.kind == rbac.SERVICEACCOUNT:
            yield (namespace, rbac.USER, subject.user_name(namespace)), subject
        else:
            yield (namespace, subject.kind, subject.name), subject
