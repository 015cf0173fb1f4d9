"""Packing policies, for profiles that enable them: BestFit, DotProduct, GpuPacking, GpuClustering.

Each scores from 0 to S = 1,000,000, so that it decides and the plugins that score to 100 break its ties. As
compared by Weng et al., "Beware of Fragmentation", USENIX ATC 2023, §6.1.
"""

from grange.api import gpus
from grange.api.gpus import DEVICES_MAX, WHOLE
from grange.placement import devices, packing
from grange.placement.loads import Load
from grange.placement.packing import LARGEST, SCALE
from grange.scheduler.node_attributes import LOAD
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.podinfo import PodInfo

_THIRD, _QUARTER = SCALE // 3, SCALE // 4
_MOST_GPUS = LARGEST[1]


class _CpuAndGpuScore(NodeScore[tuple[int, int], Load]):
    """Compares CPU and GPU requests with what is left."""

    attribute = LOAD
    scale = SCALE

    def demand(self, pod: PodInfo) -> tuple[int, int]:
        """Thousandths of CPUs and GPUs."""
        return packing.asked(pod.request)


class _GpuScore(NodeScore[int, Load]):
    """Compares the GPU request with the devices of a node."""

    attribute = LOAD
    scale = SCALE

    def demand(self, pod: PodInfo) -> int:
        """Thousandths of GPUs."""
        return devices.asked(pod.request)


class BestFit(_CpuAndGpuScore):
    """The node that would have least left.

    Score = S · (1 - ½ · left(cpu) / 128 CPUs - ½ · left(gpu) / 8 GPUs), where left is what the node would
    have free with the pod on it.
    """

    name = "BestFit"

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        """The less is left, the better."""
        shares = [
            SCALE * min(max(0, left - want), most) // (2 * most)
            for left, want, most in zip(packing.left(value), demand, LARGEST, strict=True)
        ]
        return SCALE - sum(shares)


class DotProduct(_CpuAndGpuScore):
    """The node whose free resources are least in line with what the pod asks for.

    Score = S · (1 - ½ · Σ free(r) · asked(r) / largest(r)²) over CPU and GPU: the alignment of Tetris
    (Grandl et al., SIGCOMM 2014), of which the smallest fills nodes up.
    """

    name = "DotProduct"

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        """The smaller the product, the better."""
        products = [
            SCALE * min(max(0, left), most) * min(want, most) // (2 * most * most)
            for left, want, most in zip(packing.left(value), demand, LARGEST, strict=True)
        ]
        return SCALE - sum(products)


class GpuPacking(_GpuScore):
    """Devices in use first, then idle ones of nodes in use, idle nodes last.

    Three bands of a third of the scale each, from the top:

    1. The pod goes to a device that is in use: the less that device has left, the better.
    2. It needs idle devices, on a node with some in use: the fewer devices are idle, the better.
    3. All devices of the node are idle: the fewer there are, the better.

    So whole devices and whole nodes stay free for large pods.
    """

    name = "GpuPacking"

    def score_value(self, demand: int, value: Load) -> int:
        """By band, and within it."""
        left = devices.free(value.allocatable, value.usage.devices)
        in_use = [item for item in left if demand <= item < WHOLE]
        if in_use:
            return 3 * _THIRD - _THIRD * min(in_use) // WHOLE
        idle = left.count(WHOLE)
        band = 1 if idle == len(left) else 2
        return band * _THIRD - _THIRD * idle // (DEVICES_MAX + 1)


class GpuClustering(_GpuScore):
    """Pods that ask for devices alike go together.

    Pods are of a kind by the number of whole devices that they ask for, shares being one kind.
    Four bands of a quarter of the scale each, from the top: nodes with pods of this kind alone, nodes with
    this kind among others, idle nodes, nodes with other kinds alone. Within a band, the fuller the
    better. After Gandiva (Xiao et al., OSDI 2018).
    """

    name = "GpuClustering"

    def score_value(self, demand: int, value: Load) -> int:
        """By band, and within it by how full the node is."""
        held = value.usage.devices
        left = min(_MOST_GPUS, sum(devices.free(value.allocatable, held)))
        band = _band([kind for kind, _ in held.tenants], gpus.tenant(demand))
        return _QUARTER * band + _QUARTER * (_MOST_GPUS - left) // _MOST_GPUS


def _band(kinds: list[int], kind: int) -> int:
    if not kinds:
        return 1
    if kind not in kinds:
        return 0
    return 3 if len(kinds) == 1 else 2


PLUGINS = tuple(policy().plugin() for policy in (BestFit, DotProduct, GpuClustering, GpuPacking))
