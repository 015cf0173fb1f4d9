"""ClusterRole: what its subjects may do in all namespaces, with cluster-scoped objects and with paths.

One with an aggregation rule has the rules of those that its selectors match.
"""

from typing import Any

from grange.api import names
from grange.api.meta import LabelSelector, Resource, View
from grange.api.scheme import KindInfo
from grange.api.validation import rbac


class AggregationRule(View, frozen=True):
    """Whose rules a ClusterRole has."""

    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class ClusterRole(Resource, frozen=True):
    """Rules for all namespaces, and for objects without one."""

    rules: tuple[dict[str, Any], ...] | None = None
    aggregation_rule: AggregationRule | None = None


CLUSTERROLE = KindInfo(
    group=rbac.GROUP,
    version="v1",
    kind=rbac.CLUSTERROLE,
    plural="clusterroles",
    view=ClusterRole,
    schema="io.k8s.api.rbac.v1.ClusterRole",
    namespaced=False,
    has_status=False,
    validate=rbac.check_cluster_role,
    name_rule=names.check_path_segment,
)
