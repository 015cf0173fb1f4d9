"""NodeName: a pod that names its node runs nowhere else."""

from grange.scheduler.node_plugin import NAME, NodeFilter
from grange.scheduler.podinfo import PodInfo


class NodeName(NodeFilter[str, str]):
    """Compares ``spec.nodeName`` with the node's name."""

    name = "NodeName"
    attribute = NAME
    reason = "node(s) didn't match the requested node name"

    def demand(self, pod: PodInfo) -> str:
        return pod.pod.spec.node_name

    def allows(self, demand: str, value: str) -> bool:
        return demand in ("", value)


PLUGIN = NodeName().plugin()
