"""Inline disks: volumes of a pod's spec that not every number of pods of a node may use at once.

The rules are those of kube-scheduler's VolumeRestrictions. Disks that are read-only for all who use
them do not conflict, apart from AWS volumes, which are attached for one pod.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from grange.api.kinds.pod import PodSpec


class Disk(NamedTuple):
    """One disk that a pod of a node uses; a holding like a host port.

    Attributes:
        protocol: the kind of volume.
        port: what the disk is known by among those of its kind.
        monitors: of a Ceph cluster; two that share one are the same cluster.
        shared: it is used read-only, and so may others.
    """

    protocol: str
    port: tuple[str, ...]
    monitors: frozenset[str] = frozenset()
    shared: bool = False

    def conflicts(self, other: "Disk") -> bool:
        """Whether two pods of one node may not use these two, which have protocol and port alike."""
        if self.shared and other.shared:
            return False
        return not self.monitors or bool(self.monitors & other.monitors)


def _text(given: Mapping[str, Any], key: str, default: str = "") -> str:
    return str(given.get(key) or default)


def inline_disks(spec: PodSpec) -> tuple[Disk, ...]:
    """The disks of the pod's volumes, in order, each once."""
    found: dict[Disk, None] = {}
    for volume in spec.volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            shared = bool(gce.get("readOnly"))
            found[Disk("gcePersistentDisk", (_text(gce, "pdName"),), shared=shared)] = None
        if (aws := volume.aws_elastic_block_store) is not None:
            found[Disk("awsElasticBlockStore", (_text(aws, "volumeID"),))] = None
        if (iscsi := volume.iscsi) is not None:
            shared = bool(iscsi.get("readOnly"))
            found[Disk("iscsi", (_text(iscsi, "iqn"),), shared=shared)] = None
        if (rbd := volume.rbd) is not None:
            where = (_text(rbd, "pool", "rbd"), _text(rbd, "image"))
            monitors = frozenset(str(item) for item in rbd.get("monitors") or ())
            found[Disk("rbd", where, monitors, bool(rbd.get("readOnly")))] = None
    return tuple(found)
