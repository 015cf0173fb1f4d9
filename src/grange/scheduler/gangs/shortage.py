"""What a gang is short of where not all of its pods fit: the reasons of nodes, and the limit of empty nodes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grange.api.pod_requests import PODS
from grange.placement.columns import Integers, NodeTable
from grange.placement.node_usage import amount_of, asked_amounts
from grange.placement.resource_fit import TOO_MANY_PODS, insufficient
from grange.scheduler.framework import Profiles, Scope
from grange.scheduler.gangs.capacity import Capacity, Shape, shapes
from grange.scheduler.gangs.pod_overrides import on_closed_nodes
from grange.scheduler.gangs.quotas import shown
from grange.scheduler.podinfo import PodInfo

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

    Of pods of several shapes, the shape that lacks the most room counts. By columns, as ``Capacity``.

    Returns:
        Sorted reasons; nothing where each shape has room.
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
    profile, pod, rows = profiles.of(shape.pod), shape.pod, table.all
    counts: Counter[str] = Counter()
    left = table.valid[rows].copy()
    for _, plugin in profile.filters:
        if plugin.scope is Scope.NODE and plugin.applies(pod):
            refused = np.flatnonzero(left & ~plugin.filter_rows(pod, table, rows))
            if len(refused):
                counts.update(dict(plugin.count_reasons(pod, table, refused)))
                left[refused] = False
    if profile.amounts is not None:
        asked = [(PODS, 1), *asked_amounts(profile.amounts(pod))]
        for name, amount in asked:
            total, used = table.amounts(name, rows)
            short = int(np.count_nonzero(left & (total - used - placed * amount < amount)))
            if short:
                counts[TOO_MANY_PODS if name == PODS else insufficient(name)] = short
    return tuple(sorted(counts.items()))


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
    if not domain_key:
        return empty.whole()
    return max(empty.by_domain(table, domain_key).values(), default=0)
