"""NodeUnschedulable: cordoned nodes accept no new pods, except those that tolerate it."""

from grange.placement import taint_toleration
from grange.scheduler.node_plugin import UNSCHEDULABLE, NodeFilter
from grange.scheduler.plugin_explanation import Remedy
from grange.scheduler.podinfo import PodInfo


class NodeUnschedulable(NodeFilter[bool, bool]):
    """Compares whether the pod needs an open node with whether the node is cordoned."""

    name = "NodeUnschedulable"
    attribute = UNSCHEDULABLE
    reason = "node(s) were unschedulable"

    def demand(self, pod: PodInfo) -> bool:
        return not taint_toleration.tolerated(
            pod.pod.spec.tolerations, taint_toleration.UNSCHEDULABLE
        )

    def allows(self, demand: bool, value: bool) -> bool:  # noqa: FBT001  both are values here
        return not (demand and value)

    def obstacles(self, demand: bool, value: bool) -> list[str]:  # noqa: FBT001  as above
        return ["cordoned"]

    def remedies(self, demand: bool, value: bool) -> list[Remedy]:  # noqa: FBT001  as above
        return [Remedy.of_cluster("they are uncordoned", 0.3)]


PLUGIN = NodeUnschedulable().plugin()
