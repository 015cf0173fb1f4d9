"""GpuShare: pods share GPUs; a share fits on one device, more are whole devices.

What nodes offer and pods request is in ``placement.devices``; NodeResourcesFit compares the totals,
this filter single devices. Of several that fit, the pod gets the one with least left; another plugin
of the profile may choose otherwise (the last one decides). The choice is part of the assumed pod and
is written to its annotation together with the binding. The score prefers nodes where the device that
the pod would get has least left after it.
"""

from dataclasses import replace

from grange.api import gpus
from grange.api.gpus import GPU_MILLI, WHOLE
from grange.placement import devices
from grange.placement.loads import Load
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import Code, Status
from grange.scheduler.node_plugin import LOAD, NodeFilter, NodeScore, PodFilter
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo

_IMPOSSIBLE = f"{GPU_MILLI} must be less than {WHOLE} or a multiple of it"


def _refusal(pod: PodInfo) -> str:
    """Of amounts that are no share and no whole devices: more nodes would be of no use."""
    return "" if devices.is_possible(devices.asked(pod.request)) else _IMPOSSIBLE


class GpuShare(NodeFilter[int, Load], NodeScore[int, Load]):
    """Compares the GPU request with what is left of each device."""

    name = "GpuShare"
    attribute = LOAD
    reason = "node(s) had no GPU with enough left"

    def demand(self, pod: PodInfo) -> int:
        """Thousandths of GPUs."""
        return devices.asked(pod.request)

    def allows(self, demand: int, value: Load) -> bool:
        return devices.fits(devices.free(value.allocatable, value.usage.devices), demand)

    def refusal(self, demand: int, value: Load) -> Status:
        """Pods that go help if the node has enough devices."""
        if not devices.is_possible(demand):
            return Status(Code.UNRESOLVABLE, (_IMPOSSIBLE,))
        enough = gpus.count(value.allocatable) >= max(1, gpus.tenant(demand))
        return Status(Code.UNSCHEDULABLE if enough else Code.UNRESOLVABLE, (self.reason,))

    def score_value(self, demand: int, value: Load) -> int:
        """100 where nothing is left of the device; whole devices are alike everywhere."""
        if demand >= WHOLE:
            return 0
        left = devices.free(value.allocatable, value.usage.devices)
        able = [item for item in left if item >= demand]
        return 100 - (min(able) - demand) * 100 // WHOLE if able else 0

    def events(self) -> tuple[Registration, ...]:
        grows = ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_ALLOCATABLE)
        gone = ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE)
        return (Registration(gone, self._is_possible), Registration(grows, self._is_possible))

    def _is_possible(self, pod: PodInfo, before: Object, after: Object) -> bool:
        return devices.is_possible(self.demand(pod))

    def allocate(self, pod: PodInfo, node: NodeInfo) -> tuple[int, ...]:
        left = devices.free(node.allocatable, node.usage.devices)
        return devices.best_fit(left, self.demand(pod))


_SHARE = GpuShare()

PLUGIN = replace(_SHARE.plugin(), pre_filter=PodFilter(_refusal), device_allocator=_SHARE.allocate)
