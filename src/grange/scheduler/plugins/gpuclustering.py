"""GpuClustering: pods that ask for devices alike go together.

Pods are of a kind by the number of whole devices that they ask for, shares being a kind of their own.
Four bands of a quarter of the scale each, from the top: nodes with pods of this kind alone, nodes with
this kind among others, idle nodes, nodes with other kinds alone. Within a band, the fuller the
better. After Gandiva (Xiao et al., OSDI 2018) as compared by Weng et al., USENIX ATC 2023, §6.1.
"""

from grange.api import gpus
from grange.placement import devices
from grange.placement.loads import Load
from grange.placement.packing import LARGEST, SCALE
from grange.scheduler.node_attributes import LOAD
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.podinfo import PodInfo

_BAND = SCALE // 4
_MOST = LARGEST[1]


class GpuClustering(NodeScore[int, Load]):
    """Compares the GPU request with those of the node's pods."""

    name = "GpuClustering"
    attribute = LOAD
    scale = SCALE

    def demand(self, pod: PodInfo) -> int:
        """Thousandths of GPUs."""
        return devices.asked(pod.request)

    def score_value(self, demand: int, value: Load) -> int:
        """By band, and within it by how full the node is."""
        held = value.usage.devices
        left = min(_MOST, sum(devices.free(value.allocatable, held)))
        band = _band([kind for kind, _ in held.tenants], gpus.tenant(demand))
        return _BAND * band + _BAND * (_MOST - left) // _MOST


def _band(kinds: list[int], kind: int) -> int:
    if not kinds:
        return 1
    if kind not in kinds:
        return 0
    return 3 if len(kinds) == 1 else 2


PLUGIN = GpuClustering().plugin()
