"""Role-based access control: what a user's roles allow is allowed."""

import msgspec

from grange.api.http import User
from grange.apiserver.authorization import default_roles
from grange.apiserver.authorization.authorizer import (
    AuthorizationAttributes,
    AuthorizationDecision,
    Opinion,
)
from grange.apiserver.authorization.policy_rules import PolicyRule, allows
from grange.apiserver.authorization.role_index import (
    CLUSTERROLE,
    RoleIndex,
    StoredBinding,
    StoredRole,
)


class RBACAuthorizer:
    """Allows what a rule of one of the user's roles allows; has no opinion otherwise.

    Args:
        index: of the roles and bindings.
    """

    def __init__(self, index: RoleIndex) -> None:
        self._index = index

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        """Look for a rule that allows the request."""
        missing: list[str] = []
        for bound in self._index.roles_of(attributes.user, attributes.namespace):
            if bound.rules is None:
                missing.append(_not_found(bound.binding))
                continue
            for rule in bound.rules:
                if allows(rule, attributes):
                    reason = f"RBAC: allowed by {bound.binding} to {bound.subject}"
                    return AuthorizationDecision(Opinion.ALLOWED, reason)
        reason = f"RBAC: {', '.join(missing)}" if missing else ""
        return AuthorizationDecision(Opinion.NONE, reason)

    def rules_of(self, user: User, namespace: str) -> list[PolicyRule]:
        """All rules of a user in a namespace, each once."""
        found: dict[PolicyRule, None] = {}
        for bound in self._index.roles_of(user, namespace):
            found |= dict.fromkeys(bound.rules or ())
        return [*found]


def _not_found(binding: StoredBinding) -> str:
    kind = "clusterrole" if binding.role_ref.kind == CLUSTERROLE else "role"
    return f'{kind}.rbac.authorization.k8s.io "{binding.role_ref.name}" not found'


def default_index() -> RoleIndex:
    """The roles and bindings that every server has."""
    index = RoleIndex()
    for role in default_roles.cluster_roles():
        index.set_role(msgspec.convert(role, StoredRole))
    for binding in default_roles.cluster_role_bindings():
        index.set_binding(msgspec.convert(binding, StoredBinding))
    return index
