"""Role-based access control: what a user's roles allow is allowed."""

from grange.api.http import User
from grange.api.validation import rbac
from grange.apiserver.authorization.authorizer import (
    AuthorizationAttributes,
    AuthorizationDecision,
    Opinion,
)
from grange.apiserver.authorization.policy_rules import PolicyRule, allows
from grange.apiserver.authorization.role_index import RoleName, StoredBinding
from grange.apiserver.authorization.stored_roles import StoredRoles


class RBACAuthorizer:
    """Allows what a rule of one of the user's roles allows; has no opinion otherwise.

    Args:
        roles: and their bindings.
    """

    def __init__(self, roles: StoredRoles) -> None:
        self._roles = roles

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        """Look for a rule that allows the request."""
        missing: list[str] = []
        for bound in self._roles.current().roles_of(attributes.user, attributes.namespace):
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
        for bound in self._roles.current().roles_of(user, namespace):
            found |= dict.fromkeys(bound.rules or ())
        return [*found]

    def rules_in(self, name: RoleName) -> tuple[PolicyRule, ...] | None:
        """The rules of a role; None where there is no such role."""
        return self._roles.current().rules(name)


def _not_found(binding: StoredBinding) -> str:
    kind = "clusterrole" if binding.role_ref.kind == rbac.CLUSTERROLE else "role"
    return f'{kind}.rbac.authorization.k8s.io "{binding.role_ref.name}" not found'
