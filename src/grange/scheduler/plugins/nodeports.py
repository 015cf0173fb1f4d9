"""NodePorts: no two pods of one node use the same host port."""

from collections.abc import Collection
from functools import partial

from grange.placement import ports_and_disks
from grange.placement.columns import Integers
from grange.placement.ports_and_disks import Holdings, HostPort
from grange.scheduler.node_plugin import EXCLUSIVE_USE, NodeFilter
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy, altered
from grange.scheduler.podinfo import PodInfo

_ROWS_READ = 64  # of the rows that a change would help


class NodePorts(NodeFilter[tuple[HostPort, ...], Holdings]):
    """Compares the pod's host ports with those in use."""

    name = "NodePorts"
    attribute = EXCLUSIVE_USE
    reason = "node(s) didn't have free ports for the requested pod ports"
    resolvable = True

    def demand(self, pod: PodInfo) -> tuple[HostPort, ...]:
        return pod.ports

    def allows(self, demand: tuple[HostPort, ...], value: Holdings) -> bool:
        return not ports_and_disks.conflict(value, demand)

    def explain(self, refusals: Refusals) -> PluginExplanation:
        return _Explanation(refusals)


class _Explanation:
    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self.lacks = refusals.one_each()
        self.severity = refusals.no_severity()

    def _in_use(self, node: NodeInfo) -> list[HostPort]:
        used = node.usage.ports
        return [
            item for item in self._refusals.pod.ports if ports_and_disks.conflict(used, (item,))
        ]

    def missing(self, row: int) -> list[str]:
        node = self._refusals.node(row)
        return [f"host port {_shown(port)}{_holder(node, port)}" for port in self._in_use(node)]

    def changes(self, rows: Integers) -> list[Remedy]:
        """The pod gives the ports up; the end of their holders is found elsewhere."""
        found = rows[:_ROWS_READ].tolist()
        in_use = {port: None for row in found for port in self._in_use(self._refusals.node(row))}
        text = f"it does without host port {', '.join(_shown(port) for port in in_use)}"
        change = partial(_without, in_use=in_use)
        return [Remedy(text, rows, 0.9, change=change)] if in_use else []


def _shown(port: HostPort) -> str:
    return f"{port.port}/{port.protocol}"


def _holder(node: NodeInfo, port: HostPort) -> str:
    for info in node.pods:
        if ports_and_disks.conflict(dict.fromkeys(info.ports, 1), (port,)):
            return f" is held by pod {info.pod.key}"
    return " is taken"


def _without(info: PodInfo, in_use: Collection[HostPort]) -> PodInfo:
    return altered(info, ports=tuple(item for item in info.ports if item not in in_use))


PLUGIN = NodePorts().plugin()
