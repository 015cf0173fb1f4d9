"""The ways in which a gang may look at the nodes, one after another, until one of them holds it.

Without a topology there is one way: all nodes. With one, domains come first: of those that have room
for the whole gang the smallest, so that large ones stay whole for large gangs; among equals the first
by name. With ``Preferred`` follow as few domains together as have the room, the roomiest first, and
in the end all nodes. With ``Required``, members that have a node already decide the domain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from grange.api.kinds.podgroup import PREFERRED, PodGroup
from grange.api.quantity import QuantityError
from grange.scheduler.framework import Profiles
from grange.scheduler.gangs import capacity, quotas
from grange.scheduler.gangs.capacity import Capacity
from grange.scheduler.gangs.pod_groups import ON_NODES, Gang
from grange.scheduler.gangs.pod_overrides import within
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """How to look at the nodes.

    Attributes:
        key: the label whose values are domains.
        ways: for each way the domains to look at; none of them means all nodes.
        room: for how many pods there is room at most, where all must be together.
        lack: what else is missing; empty for nothing.
    """

    ways: tuple[tuple[str, ...], ...]
    room: int
    lack: str = ""
    key: str = ""

    def seen(self, pods: Sequence[PodInfo], domains: tuple[str, ...]) -> Sequence[PodInfo]:
        """The pods as they are to be decided in one of the ways."""
        return [within(pod, self.key, domains) for pod in pods] if domains else pods


def views(
    profiles: Profiles,
    snapshot: NodeInfoSnapshot,
    gang: Gang,
    pods: Sequence[PodInfo],
    need: int,
) -> TopologyOptions:
    """What to try; no ways when no attempt could succeed.

    Args:
        profiles: the plugins.
        snapshot: the cluster, up to date.
        gang: whose pods.
        pods: the candidates, as they look at nodes in any case.
        need: how many of them must be placed.
    """
    table, group = snapshot.table, gang.group
    found = Capacity.of(profiles, table, capacity.shapes(profiles, pods))
    whole = found.whole()
    if group is None or whole < need:
        return TopologyOptions((), whole)
    lack = _lack(group, snapshot)
    if lack:
        return TopologyOptions((), whole, lack)
    topology = group.spec.topology
    if topology is None:
        return TopologyOptions(((),), whole)
    by_domain = found.by_domain(table, topology.key)
    preferred = topology.mode == PREFERRED
    pinned = () if preferred else _pinned(gang, snapshot, topology.key)
    if pinned:
        by_domain = {value: fits for value, fits in by_domain.items() if value in pinned}
    size = found.slack(table, topology.key)
    sets = _alone(by_domain, size, need)
    if preferred:
        sets = [*sets, *_together(by_domain, need)]
    if preferred:
        return TopologyOptions((*sets, ()), whole, key=topology.key)
    most = max(by_domain.values(), default=0)
    return TopologyOptions(tuple(sets), most, f"in one domain of {topology.key}", topology.key)


def _alone(by_domain: dict[str, int], size: dict[str, int], need: int) -> list[tuple[str, ...]]:
    fitting = [value for value, fits in by_domain.items() if fits >= need]
    fitting.sort(key=lambda value: (size[value], value))
    return [(value,) for value in fitting]


def _together(by_domain: dict[str, int], need: int) -> list[tuple[str, ...]]:
    chosen: list[str] = []
    room_there = 0
    for value in sorted(by_domain, key=lambda value: (-by_domain[value], value)):
        chosen.append(value)
        room_there += by_domain[value]
        if room_there >= need:
            return [tuple(chosen)] if len(chosen) > 1 else []
    return []


def _pinned(gang: Gang, snapshot: NodeInfoSnapshot, key: str) -> frozenset[str]:
    """The domains in which members are."""
    found = set()
    for member in gang.members.values():
        if member.state in ON_NODES and not member.is_terminating:
            entry = snapshot.get(member.pod.spec.node_name)
            if entry is not None and entry.node is not None:
                found.add(entry.node.metadata.labels.get(key, ""))
    return frozenset(found - {""})


def _lack(group: PodGroup, snapshot: NodeInfoSnapshot) -> str:
    if not group.spec.min_resources:
        return ""
    try:
        wanted = quotas.read(group.spec.min_resources)
    except QuantityError:
        return ""  # the server refuses such a group
    free = capacity.free(snapshot.table, [*wanted])
    lacking = [
        f"{name} {quotas.shown(name, free[name])} of {quotas.shown(name, amount)}"
        for name, amount in wanted.items()
        if free[name] < amount
    ]
    return f"minResources are not free: {', '.join(lacking)}" if lacking else ""
