"""VolumeRestrictions: no two pods of one node use the same inline disk (GCE, AWS, iSCSI, RBD) unless all only read."""

from grange.placement import ports_and_disks
from grange.placement.ports_and_disks import Disk, Holdings
from grange.scheduler.node_plugin import EXCLUSIVE_USE, NodeFilter
from grange.scheduler.podinfo import PodInfo


class VolumeRestrictions(NodeFilter[tuple[Disk, ...], Holdings]):
    """Compares the pod's inline disks with those in use."""

    name = "VolumeRestrictions"
    attribute = EXCLUSIVE_USE
    reason = "node(s) had no available disk"
    resolvable = True

    def demand(self, pod: PodInfo) -> tuple[Disk, ...]:
        return pod.disks

    def allows(self, demand: tuple[Disk, ...], value: Holdings) -> bool:
        return not ports_and_disks.conflict(value, demand)


PLUGIN = VolumeRestrictions().plugin()
