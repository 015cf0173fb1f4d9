"""Which nodes have no room for another pod of a controller, as far as the caches show."""

from collections.abc import Sequence

from grange.api import pod_requests
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, PodSpec, is_finished
from grange.api.meta import ObjectKey
from grange.api.quantity import QuantityError
from grange.controllers.replication.listers import Listers
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, charged

_LOOKED_AT = 200
"""Nodes that are added up in one pass; of others nothing is known, so they are not preferred."""


class FullNodes:
    """The names of nodes that have no room; each is added up when it is asked about.

    Args:
        listers: nodes and their pods.
        spec: of the pod that needs room.
    """

    def __init__(self, listers: Listers, spec: PodSpec) -> None:
        self._listers = listers
        self._spec = spec
        self._known: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        key = str(name)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _LOOKED_AT:
                return True
            known = self._known[key] = self._is_full(key)
        return known

    def _is_full(self, name: str) -> bool:
        node = self._listers.nodes.store.get(ObjectKey("", name))
        if node is None:
            return True
        try:
            return not _fits(self._spec, node, self._listers.on_node(name))
        except QuantityError:
            return False  # whoever binds it finds out


def _fits(spec: PodSpec, node: Node, there: Sequence[Pod]) -> bool:
    usage = IDLE
    for pod in there:
        if not is_finished(pod):
            usage = charged(usage, pod_requests.pod_request(pod.spec), ())
    given = node.status.allocatable or node.status.capacity
    if not given:
        return True  # it has not said yet what it has
    return resource_fit.fits(pod_requests.pod_request(spec), pod_requests.allocatable(given), usage)
