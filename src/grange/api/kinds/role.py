"""Role: what its subjects may do with the objects of one namespace."""

from typing import Any

from grange.api import names
from grange.api.meta import Resource
from grange.api.scheme import KindInfo
from grange.api.validation import rbac


class NamespacedRole(Resource, frozen=True):
    """A role; its rules are read by the API server."""

    rules: tuple[dict[str, Any], ...] | None = None


ROLE = KindInfo(
    group=rbac.GROUP,
    version="v1",
    kind=rbac.ROLE,
    plural="roles",
    view=NamespacedRole,
    schema="io.k8s.api.rbac.v1.Role",
    has_status=False,
    validate=rbac.check_role,
    name_rule=names.check_path_segment,
)
