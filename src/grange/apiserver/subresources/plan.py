"""``plan`` of a NodePool: what the node controller would do for it now."""

from functools import partial

from grange.apiserver.subresources.pool_report import serve
from grange.apiserver.subresources.subresource import Subresource

PLAN = Subresource(
    "plan",
    {"get": partial(serve, "plan", "NodePoolPlan")},
    kind="NodePoolPlan",
    group="grange.dev",
    version="v1alpha1",
)
