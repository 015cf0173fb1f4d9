"""GpuPacking: devices in use first, then idle ones of nodes in use, idle nodes last.

Three bands of a third of the scale each, from the top:

1. The pod goes to a device that is in use: the less that device has left, the better.
2. It needs idle devices, on a node with some in use: the fewer devices are idle, the better.
3. All devices of the node are idle: the fewer there are, the better.

So whole devices and whole nodes stay free for large pods: Weng et al., USENIX ATC 2023, §6.1, after the
practice of cluster managers that consolidate. Pods without devices are of no concern here.
"""

from grange.api.gpus import DEVICES_MAX, WHOLE
from grange.placement import devices
from grange.placement.loads import Load
from grange.placement.packing import SCALE
from grange.scheduler.node_attributes import LOAD
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.podinfo import PodInfo

_BAND = SCALE // 3


class GpuPacking(NodeScore[int, Load]):
    """Compares the GPU request with what is left of each device."""

    name = "GpuPacking"
    attribute = LOAD
    scale = SCALE

    def demand(self, pod: PodInfo) -> int:
        """Thousandths of GPUs."""
        return devices.asked(pod.request)

    def score_value(self, demand: int, value: Load) -> int:
        """By band, and within it."""
        left = devices.free(value.allocatable, value.usage.devices)
        in_use = [item for item in left if demand <= item < WHOLE]
        if in_use:
            return 3 * _BAND - _BAND * min(in_use) // WHOLE
        idle = left.count(WHOLE)
        band = 1 if idle == len(left) else 2
        return band * _BAND - _BAND * idle // (DEVICES_MAX + 1)


PLUGIN = GpuPacking().plugin()
