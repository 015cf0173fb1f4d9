"""Host ports and inline disks in use, and what conflicts.

A wildcard address (0.0.0.0, also written as nothing) conflicts with every address on the same
protocol and port. Holdings are counted, so that two pods of one port and one leaving keep it held.
The holdings are an immutable value: adding and removing give a new one.

Disks are volumes of a pod's spec that not every number of pods of a node may use at once; the rules are those
of kube-scheduler's VolumeRestrictions. Disks that are read-only for all who use them do not conflict, apart
from AWS volumes, which are attached for one pod.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from grange.api.kinds.pod import PodSpec

ANY = "0.0.0.0"  # noqa: S104  the field's wildcard; nothing is bound here


class HostPort(NamedTuple):
    """One port of the node that a pod requests."""

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: "HostPort") -> bool:
        """Whether two pods may not hold these two, which have protocol and port alike."""
        return self.ip == other.ip or ANY in (self.ip, other.ip)


class Disk(NamedTuple):
    """One disk that a pod of a node uses; a holding like a host port.

    Attributes:
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


Holding = HostPort | Disk
"""What a pod holds of its node, apart from amounts."""
Holdings = Mapping[Holding, int]
NO_HOLDINGS: Holdings = MappingProxyType({})


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The host ports of the pod's containers and sidecars, in order, each once."""
    sidecars = [one for one in spec.init_containers if one.restart_policy == "Always"]
    found = {
        HostPort(item.host_ip or ANY, item.protocol or "TCP", item.host_port): None
        for container in (*spec.containers, *sidecars)
        for item in container.ports
        if item.host_port > 0
    }
    return tuple(found)


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


def held(used: Holdings, more: Iterable[Holding]) -> Holdings:
    """The holdings with one more holder of each port."""
    result = dict(used)
    for port in more:
        result[port] = result.get(port, 0) + 1
    return result


def released(used: Holdings, fewer: Iterable[Holding]) -> Holdings:
    """The holdings with one holder less of each port; unknown ports are ignored."""
    result = dict(used)
    for port in fewer:
        count = result.get(port, 0)
        if count > 1:
            result[port] = count - 1
        else:
            result.pop(port, None)
    return result or NO_HOLDINGS


def conflict(used: Holdings, wanted: Iterable[Holding]) -> bool:
    """Whether any wanted port or disk is held already."""
    if not used:
        return False
    return any(
        have.port == want.port and have.protocol == want.protocol and have.conflicts(want)  # type: ignore[arg-type]  # of one protocol, so of one type
        for want in wanted
        for have in used
    )
