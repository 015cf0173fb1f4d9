"""How many pods of a gang fit, what it is short of, and among which nodes it is tried: by columns.

Only amounts that a plugin counts and the filters that look at nothing but the node object are taken
into account, so the result is an upper bound: too little capacity here means that an attempt would fail.
The cost is a few operations on whole columns for each shape of pod, not for each pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grange.api.kinds.podgroup import PREFERRED, PodGroup
from grange.api.pod_requests import PODS, Resources, is_scalar
from grange.api.quantity import QuantityError
from grange.placement.columns import Integers, NodeTable
from grange.placement.node_usage import amount_of, asked_amounts
from grange.placement.resource_fit import TOO_MANY_PODS, insufficient
from grange.scheduler.diagnosis import Tally
from grange.scheduler.framework import Profiles, Scope
from grange.scheduler.gangs.pod_groups import Gang, MemberState
from grange.scheduler.gangs.pod_overrides import on_closed_nodes
from grange.scheduler.gangs.quotas import listed, read, shown
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_ANY_NUMBER = 2**31  # of pods on a node
_DOMAINS_MAX = 8  # to look for victims in
_NOTHING: Mapping[str, Integers] = {}


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods of one signature: any of them, and how many there are."""

    pod: PodInfo
    count: int


def shapes(profiles: Profiles, pods: Sequence[PodInfo]) -> list[Shape]:
    """The pods by signature, in the order of their first one."""
    first: dict[int, PodInfo] = {}
    counts: dict[int, int] = {}
    for pod in pods:
        number = profiles.sign(pod)
        first.setdefault(number, pod)
        counts[number] = counts.get(number, 0) + 1
    return [Shape(first[number], count) for number, count in counts.items()]


def copies(
    table: NodeTable,
    need: Resources,
    *,
    empty: bool = False,
    freed: Mapping[str, Integers] = _NOTHING,
) -> Integers:
    """How many such pods fit on each row by amounts alone; ``freed`` is what each row has left in addition."""
    rows = table.all
    total, used = table.amounts(PODS, rows)
    fitting = total if empty else total - used
    if PODS in freed:
        fitting = fitting + freed[PODS]
    for name, amount in asked_amounts(need):
        total, used = table.amounts(name, rows)
        if is_scalar(name) and not total.any():
            continue  # no node offers it: missing, or not counted at all, which the filters decide
        left = total if empty else total - used + freed.get(name, 0)
        fitting = np.minimum(fitting, left // amount)
    return np.maximum(fitting, 0)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many pods of each shape fit on each row."""

    shapes: tuple[Shape, ...]
    copies: tuple[Integers, ...]

    @classmethod
    def of(
        cls, profiles: Profiles, table: NodeTable, wanted: Sequence[Shape], *, empty: bool = False
    ) -> "Capacity":
        """Measure it."""
        found = []
        for shape in wanted:
            profile = profiles.of(shape.pod)
            counted = profile.amounts
            if counted is None:
                fitting = np.full(table.size, _ANY_NUMBER, np.int64)
            else:
                fitting = copies(table, counted(shape.pod), empty=empty)
            found.append(np.where(profile.allowed_rows(shape.pod, table), fitting, 0))
        return cls(tuple(wanted), tuple(found))

    def whole(self) -> int:
        """How many of the pods fit at most, over all rows."""
        return sum(
            min(shape.count, int(fitting.sum()))
            for shape, fitting in zip(self.shapes, self.copies, strict=True)
        )

    def most(self, table: NodeTable, domain_key: str) -> int:
        """The same where all nodes must share a value of a label; an empty key is none."""
        if not domain_key:
            return self.whole()
        return max(self.by_domain(table, domain_key).values(), default=0)

    def by_domain(self, table: NodeTable, key: str, *, unlimited: bool = False) -> dict[str, int]:
        """The same for the rows of each value of a label; domains without any capacity are left out.

        ``unlimited`` is as if there were any number of pods of each shape: the size of a domain.
        """
        column = table.labels(key)
        ids = table.domains(key)
        labelled = ids >= 0
        found: dict[str, int] = {}
        for shape, fitting in zip(self.shapes, self.copies, strict=True):
            sums = np.bincount(ids[labelled], weights=fitting[labelled])
            for number in np.flatnonzero(sums):
                value, room = column.values[number], int(sums[number])
                room = room if unlimited else min(shape.count, room)
                found[value] = found.get(value, 0) + room
        return found


def _free(table: NodeTable, names: Sequence[str]) -> Mapping[str, int]:
    """What all nodes together have left of these resources."""
    rows = table.all
    valid = table.valid[rows]
    found: dict[str, int] = {}
    for name in names:
        total, used = table.amounts(name, rows)
        found[name] = int(np.maximum(total - used, 0)[valid].sum())
    return found


# --- what is short ---------------------------------------------------------------------------------

ReasonCounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GangDemand:
    """What a gang needs that waits for nodes.

    Attributes:
        pods: the members that are needed; none where some of them may not be scheduled now.
        domain_key: the label of which their nodes must share a value; empty for any nodes.
        has_nominations: whether resources are kept for pods that come first.
    """

    pods: tuple[PodInfo, ...]
    domain_key: str
    has_nominations: bool


def count_reasons(profiles: Profiles, table: NodeTable, pods: Sequence[PodInfo]) -> ReasonCounts:
    """Why nodes take no more of these pods once as many are placed as fit, and how many nodes give each reason.

    Of several shapes, the one that lacks the most room counts. Nothing where each shape has room.
    """
    found = Capacity.of(profiles, table, shapes(profiles, pods))
    lacking = [
        (shape.count - int(fitting.sum()), -at)
        for at, (shape, fitting) in enumerate(zip(found.shapes, found.copies, strict=True))
    ]
    most, at = max(lacking, default=(0, 0))
    if most <= 0:
        return ()
    return _reasons_of(profiles, table, found.shapes[-at], found.copies[-at])


def _reasons_of(
    profiles: Profiles, table: NodeTable, shape: Shape, placed: Integers
) -> ReasonCounts:
    profile, pod = profiles.of(shape.pod), shape.pod
    tally = Tally()
    fixed = [
        (name, plugin)
        for name, plugin in profile.filters
        if plugin.scope is Scope.NODE and plugin.applies(pod)
    ]
    rows = tally.add_refusals(fixed, pod, table, np.flatnonzero(table.valid[table.all]))
    if profile.amounts is not None:
        asked = [(PODS, 1), *asked_amounts(profile.amounts(pod))]
        for name, amount in asked:
            total, used = table.amounts(name, rows)
            short = int(np.count_nonzero(total - used - placed[rows] * amount < amount))
            if short:
                tally.add("", [(TOO_MANY_PODS if name == PODS else insufficient(name), short)])
    return tally.diagnosis(0).counts


def describe_requests(profiles: Profiles, pods: Sequence[PodInfo], reasons: ReasonCounts) -> str:
    """What the pods request of the resources that are short, as ``(cpu 2 each)``; empty for none."""
    given = dict(reasons)
    found = shapes(profiles, pods)
    parts = []
    for name in dict.fromkeys(
        name for shape in found for name, _ in asked_amounts(shape.pod.request.resources)
    ):
        if insufficient(name) in given:
            amounts = [amount_of(shape.pod.request.resources, name) for shape in found]
            together = sum(
                amount * shape.count for amount, shape in zip(amounts, found, strict=True)
            )
            parts.append(f"{name} {shown(name, amounts[0] if len(found) == 1 else together)}")
    if not parts:
        return ""
    return f"({', '.join(parts)} {'each' if len(found) == 1 else 'in all'})"


def room_when_empty(
    profiles: Profiles, table: NodeTable, pods: Sequence[PodInfo], domain_key: str = ""
) -> int:
    """For how many of the pods there would be room at most if no other pods were on the nodes.

    Tainted and cordoned nodes count, since they may open: more than this can never fit.
    With ``domain_key`` all nodes must share a value of that label.
    """
    wanted = [Shape(on_closed_nodes(shape.pod), shape.count) for shape in shapes(profiles, pods)]
    empty = Capacity.of(profiles, table, wanted, empty=True)
    return empty.most(table, domain_key)


# --- where to try ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """Which nodes to try, one option after another until one holds the gang.

    Without a topology there is one option: all nodes. With one, domains come first: of those that
    have room for the whole gang the smallest, so that large ones stay whole for large gangs. With
    ``Preferred`` follow as few domains together as have the room, the roomiest first, and in the end
    all nodes. With ``Required``, members that have a node already decide the domain.

    Attributes:
        domains: of each option, values of the label ``key``; none of them means all nodes.
        room: for how many pods there is room at most, where all must be together.
        shortage: what else is missing; empty for nothing.
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
    """What to try for a gang that needs so many of these pods; no options when no attempt could succeed."""
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
        if member.state in (MemberState.ASSUMED, MemberState.BOUND):
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
    left = _free(snapshot.table, [*wanted])
    short = [name for name, amount in wanted.items() if left[name] < amount]
    return f"minResources are not free: {listed(short, left, wanted)}" if short else ""
