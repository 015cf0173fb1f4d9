"""``audit`` of a NodePool: whether its records and its provider agree."""

from functools import partial

from grange.apiserver.subresources.pool_report import serve
from grange.apiserver.subresources.subresource import Subresource

AUDIT = Subresource(
    "audit",
    {"get": partial(serve, "audit", "NodePoolAudit")},
    kind="NodePoolAudit",
    group="grange.dev",
    version="v1alpha1",
)
