"""ClusterRoleBinding: who has a ClusterRole in the whole cluster."""

from grange.api import names
from grange.api.kinds.rolebinding import COLUMNS
from grange.api.meta import Resource
from grange.api.scheme import KindInfo
from grange.api.validation import rbac


class ClusterRoleBinding(Resource, frozen=True):
    """A binding in the whole cluster; its subjects are read by the API server."""


CLUSTERROLEBINDING = KindInfo(
    group=rbac.GROUP,
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    view=ClusterRoleBinding,
    schema="io.k8s.api.rbac.v1.ClusterRoleBinding",
    namespaced=False,
    has_status=False,
    columns=COLUMNS,
    default=rbac.set_binding_defaults,
    validate=rbac.check_cluster_role_binding,
    name_rule=names.check_path_segment,
)
