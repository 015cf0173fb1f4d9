"""Host ports and inline disks in use, and what conflicts.

A wildcard address (0.0.0.0, also written as nothing) conflicts with every address on the same
protocol and port. Holdings are counted, so that two pods of one port and one leaving keep it held.
The holdings are an immutable value: adding and removing give a new one.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from grange.api.kinds.pod import PodSpec
from grange.placement.disks import Disk

ANY = "0.0.0.0"  # noqa: S104  the field's wildcard; nothing is bound here


class HostPort(NamedTuple):
    """One port of the node that a pod requests."""

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: "HostPort") -> bool:
        """Whether two pods may not hold these two, which have protocol and port alike."""
        return self.ip == other.ip or ANY in (self.ip, other.ip)


Holding = HostPort | Disk
"""What a pod holds of its node, apart from amounts."""
UsedPorts = Mapping[Holding, int]
NO_PORTS: UsedPorts = MappingProxyType({})


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The host ports of the pod's containers and sidecars, in order, each once."""
    found: dict[HostPort, None] = {}
    for container in spec.containers:
        for item in container.ports:
            if item.host_port > 0:
                found[HostPort(item.host_ip or ANY, item.protocol or "TCP", item.host_port)] = None
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            for item in container.ports:
                if item.host_port > 0:
                    wanted = HostPort(item.host_ip or ANY, item.protocol or "TCP", item.host_port)
                    found[wanted] = None
    return tuple(found)


def held(used: UsedPorts, more: Iterable[Holding]) -> UsedPorts:
    """The holdings with one more holder of each port."""
    result = dict(used)
    for port in more:
        result[port] = result.get(port, 0) + 1
    return result


def released(used: UsedPorts, fewer: Iterable[Holding]) -> UsedPorts:
    """The holdings with one holder less of each port; unknown ports are ignored."""
    result = dict(used)
    for port in fewer:
        count = result.get(port, 0)
        if count > 1:
            result[port] = count - 1
        else:
            result.pop(port, None)
    return result or NO_PORTS


def conflict(used: UsedPorts, wanted: Iterable[Holding]) -> bool:
    """Whether any wanted port or disk is held already."""
    if not used:
        return False
    return any(
        have.port == want.port and have.protocol == want.protocol and have.conflicts(want)  # type: ignore[arg-type]  # of one protocol, so of one type
        for want in wanted
        for have in used
    )
