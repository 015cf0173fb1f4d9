"""Among which nodes a gang is placed: options that are tried one after another until one holds it.

Without a topology there is one option: all nodes. With one, domains come first: of those that have room
for the whole gang the smallest, so that large ones stay whole for large gangs; among equals the first
by name. With ``Preferred`` follow as few domains together as have the room, the roomiest first, and
in the end all nodes. With ``Required``, members that have a node already decide the domain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from grange.api.kinds.podgroup import PREFERRED, PodGroup
from grange.api.quantity import QuantityError
from grange.scheduler.framework import Profiles
from grange.scheduler.gangs.capacity import Capacity, free, shapes
from grange.scheduler.gangs.pod_groups import ON_NODES, Gang
from grange.scheduler.gangs.quotas import listed, read
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_DOMAINS_MAX = 8  # to look for victims in


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """Which nodes to try.

    Attributes:
        domains: for each option the domains to try; none of them means all nodes.
        room: for how many pods there is room at most, where all must be together.
        shortage: what else is missing; empty for nothing.
        key: the label whose values are domains.
    """

    domains: tuple[tuple[str, ...], ...]
    room: int
    shortage: str = ""
    key: str = ""


def topology_options(
    profiles: Profiles,
    snapshot: NodeInfoSnapshot,
    gang: Gang,
    pods: Sequence[PodInfo],
    need: int,
) -> TopologyOptions:
    """What to try; no options when no attempt could succeed.

    Args:
        profiles: the plugins.
        snapshot: the cluster, up to date.
        gang: whose pods.
        pods: the candidates, with what is overridden for all options.
        need: how many of them must be placed.
    """
    table, group = snapshot.table, gang.group
    found = Capacity.of(profiles, table, shapes(profiles, pods))
    whole = found.whole()
    if group is None or whole < need:
        return TopologyOptions((), whole)
    shortage = _shortage(group, snapshot)
    if shortage:
        return TopologyOptions((), whole, shortage)
    topology = group.spec.topology
    if topology is None:
        return TopologyOptions(((),), whole)
    key, by_domain = topology.key, found.by_domain(table, topology.key)
    size = found.by_domain(table, key, unlimited=True)
    if topology.mode == PREFERRED:
        chosen = [*_alone(by_domain, size, need), *_together(by_domain, need), ()]
        return TopologyOptions(tuple(chosen), whole, key=key)
    occupied = _occupied(gang, snapshot, key)
    if occupied:
        by_domain = {value: fits for value, fits in by_domain.items() if value in occupied}
    most = max(by_domain.values(), default=0)
    return TopologyOptions(
        tuple(_alone(by_domain, size, need)), most, f"in one domain of {key}", key
    )


def preemption_options(
    profiles: Profiles, snapshot: NodeInfoSnapshot, gang: Gang, pods: Sequence[PodInfo], need: int
) -> TopologyOptions:
    """Where to look for victims: a few domains that would hold the gang if they were empty.

    Those with the most room now come first.
    """
    key = gang.required_topology
    if not key:
        return TopologyOptions(((),), need)
    table, wanted = snapshot.table, shapes(profiles, pods)
    empty = Capacity.of(profiles, table, wanted, empty=True).by_domain(table, key)
    now = Capacity.of(profiles, table, wanted).by_domain(table, key)
    fitting = [value for value, fits in empty.items() if fits >= need]
    fitting.sort(key=lambda value: (-now.get(value, 0), value))
    chosen = tuple((value,) for value in fitting[:_DOMAINS_MAX])
    return TopologyOptions(chosen, need, key=key)


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


def _occupied(gang: Gang, snapshot: NodeInfoSnapshot, key: str) -> frozenset[str]:
    """The domains in which members are."""
    found = set()
    for member in gang.members.values():
        if member.state in ON_NODES and not member.is_terminating:
            entry = snapshot.get(member.pod.spec.node_name)
            if entry is not None:
                found.add(entry.labels.get(key, ""))
    return frozenset(found - {""})


def _shortage(group: PodGroup, snapshot: NodeInfoSnapshot) -> str:
    if not group.spec.min_resources:
        return ""
    try:
        wanted = read(group.spec.min_resources)
    except QuantityError:
        return ""  # the server refuses such a group
    left = free(snapshot.table, [*wanted])
    short = [name for name, amount in wanted.items() if left[name] < amount]
    return f"minResources are not free: {listed(short, left, wanted)}" if short else ""
