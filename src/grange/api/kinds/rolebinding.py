"""RoleBinding: who has a role in one namespace."""

from grange.api import names
from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.validation import rbac

_WIDE = 1


class RoleBinding(Resource, frozen=True):
    """A binding; its subjects are read by the API server."""


def _role(document: Document, now: float) -> cells.Cell:
    reference = document.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Column:
    def names_of(document: Document, now: float) -> cells.Cell:
        found = [item for item in document.get("subjects") or () if item.get("kind") == kind]
        if kind == rbac.SERVICEACCOUNT:
            return ", ".join(
                f"{item.get('namespace', '')}/{item.get('name', '')}" for item in found
            )
        return ", ".join(item.get("name", "") for item in found)

    return Column(f"{kind}s", names_of, description=f"Each {kind} that has it.", priority=_WIDE)


COLUMNS = (
    Column("Role", _role, description="The role that its subjects have."),
    *(_subjects(kind) for kind in (rbac.USER, rbac.USER_GROUP, rbac.SERVICEACCOUNT)),
)

ROLEBINDING = KindInfo(
    group=rbac.GROUP,
    version="v1",
    kind="RoleBinding",
    plural="rolebindings",
    view=RoleBinding,
    schema="io.k8s.api.rbac.v1.RoleBinding",
    has_status=False,
    columns=COLUMNS,
    default=rbac.set_binding_defaults,
    validate=rbac.check_role_binding,
    name_rule=names.check_path_segment,
)
