"""Users give only rights that they have: to a role, or to the subjects of a binding.

As in Kubernetes, the verb ``escalate`` on roles and the verb ``bind`` on the role of a binding
permit it; superusers have both.
"""

import msgspec

from grange.api import codec
from grange.api.kinds import CLUSTERROLE, CLUSTERROLEBINDING, ROLE, ROLEBINDING
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden, NotFound
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.apiserver.authorization.authorizer import AuthorizationAttributes, Authorizer
from grange.apiserver.authorization.policy_rules import ANY, PolicyRule, uncovered
from grange.apiserver.authorization.rbac_authorizer import RBACAuthorizer
from grange.apiserver.authorization.role_index import RoleName, StoredBinding, StoredRole
from grange.store.interface import Store

_KINDS = {ROLE, CLUSTERROLE, ROLEBINDING, CLUSTERROLEBINDING}
_EVERYTHING = (
    PolicyRule((ANY,), (ANY,), (ANY,)),
    PolicyRule((ANY,), non_resource_urls=(ANY,)),
)


class PrivilegeEscalation:
    """The rule.

    Args:
        store: where roles and bindings are.
        authorizer: decides who may give more than they have.
        rbac: lists what users have.
    """

    def __init__(self, store: Store, authorizer: Authorizer, rbac: RBACAuthorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._rbac = rbac

    def admit(self, attempt: Attributes) -> None:
        """Accept a write that gives no rights that its user lacks.

        Raises:
            Forbidden: it does; the message lists them.
            NotFound: a binding refers to a role that is not there.
        """
        document = attempt.document
        if document is None or attempt.info not in _KINDS:
            return
        if attempt.info in {ROLE, CLUSTERROLE}:
            self._admit_role(attempt, document)
        else:
            self._admit_binding(attempt, document)

    def _admit_role(self, attempt: Attributes, document: Document) -> None:
        try:
            wanted = msgspec.convert(document, StoredRole).rules or ()
        except msgspec.ValidationError:
            return  # its schema is checked later
        aggregates = document.get("aggregationRule") is not None
        old = self._stored(attempt)
        if (
            old is not None
            and old.get("rules") == document.get("rules")
            and old.get("aggregationRule") == document.get("aggregationRule")
        ):
            return
        if not self._may(attempt, "escalate", attempt.info, attempt.name):
            self._compare(attempt, _EVERYTHING if aggregates else wanted)

    def _admit_binding(self, attempt: Attributes, document: Document) -> None:
        try:
            binding = msgspec.convert(document, StoredBinding)
        except msgspec.ValidationError:
            return
        old = self._stored(attempt)
        fields = ("roleRef", "subjects")
        if old is not None and all(old.get(name) == document.get(name) for name in fields):
            return
        is_role = binding.role_ref.kind == ROLE.kind
        info, name = ROLE if is_role else CLUSTERROLE, binding.role_ref.name
        if self._may(attempt, "bind", info, name):
            return
        wanted = self._rbac.rules_in(RoleName(attempt.namespace if is_role else "", name))
        if wanted is None:
            raise NotFound(
                f'{info.qualified} "{name}" not found; create it before it is bound',
                kind=info.plural,
                name=name,
                group=info.group,
            )
        self._compare(attempt, wanted)

    def _may(self, attempt: Attributes, verb: str, info: AnyKind, name: str) -> bool:
        asked = AuthorizationAttributes(
            attempt.user,
            verb,
            info.group,
            info.plural,
            namespace=attempt.namespace,
            name=name,
        )
        return self._authorizer.authorize(asked).is_allowed

    def _compare(self, attempt: Attributes, wanted: tuple[PolicyRule, ...]) -> None:
        user = attempt.user
        lacking = uncovered(self._rbac.rules_of(user, attempt.namespace), wanted)
        if not lacking:
            return
        listed = "\n".join(_shown(rule) for rule in lacking)
        raise Forbidden(
            f'{attempt.info.qualified} "{attempt.name}" is forbidden: user "{user.name}" '
            f"(groups={codec.encode_any([*user.groups]).decode()}) is attempting to grant RBAC "
            f"permissions not currently held:\n{listed}",
            kind=attempt.info.plural,
            name=attempt.name,
            group=attempt.info.group,
        )

    def _stored(self, attempt: Attributes) -> Document | None:
        if attempt.verb == "create":
            return None
        entry = self._store.latest(storage.key(attempt.info, attempt.namespace, attempt.name))
        return None if entry is None else codec.decode_trusted(entry.value)


def _shown(rule: PolicyRule) -> str:
    fields = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "ResourceNames": rule.resource_names,
        "NonResourceURLs": rule.non_resource_urls,
        "Verbs": rule.verbs,
    }
    parts = [
        f"{name}:{codec.encode_any([*values]).decode()}"
        for name, values in fields.items()
        if values
    ]
    return f"{{{', '.join(parts)}}}"
