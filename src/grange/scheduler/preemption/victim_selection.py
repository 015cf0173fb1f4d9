"""Selection of victims: those on one node, which nodes are looked at, and which of them is the best.

On a node all less important pods are removed first; then as many as possible are reprieved, the most
important first, and before all others those whose eviction would violate a disruption budget.

Looking at every node of a large cluster costs more than the best of all nodes is worth, so the
search starts at an offset and stops when it has a share of them, but not before one is found
that violates no disruption budget, if there is any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from grange.api import timestamps
from grange.api.pod_requests import PodRequest
from grange.base.bounded import BoundedDict
from grange.placement.loads import Load
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.dry_run import DryRun
from grange.scheduler.framework import Code, Status
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo

T = TypeVar("T")

UNKNOWN, UNHELPFUL, VIOLATING, CLEAN = range(4)  # what is known of a node
_STEP = 64  # nodes at a time, when few more are wanted
NO_VICTIMS = "No preemption victims found for incoming pod"
# As bytes of one length, the least of hundreds is found in an array without a loop.
RANK = np.dtype("S32")
Rank = bytes
Ranks = NDArray[np.bytes_]
NO_RANK: Rank = b"\xff" * RANK.itemsize  # after all others

_OFFSET = 1 << 31  # makes every priority positive, so that fewer victims never sum to more
_LATEST_US = 1 << 62
NONE_BELOW = Status(Code.UNRESOLVABLE, (NO_VICTIMS,))

_PatternKey = tuple[Load, tuple[int, ...], int]
Patterns = BoundedDict[_PatternKey, tuple[tuple[int, ...] | Status, list[PodRequest]]]
"""What ``_reprieve`` found, by a node's load and the requests of candidates and nominated pods."""


class Victims(msgspec.Struct, frozen=True, gc=False):
    """The pods of one node that would have to go.

    Attributes:
        node_name: from which node.
        pods: the victims, the most important first; at least one.
        violations: how many of them violate a disruption budget.
    """

    node_name: str
    pods: tuple[PodInfo, ...]
    violations: int = 0

    @property
    def rank(self) -> Rank:
        """For the choice of the node; the least is the best.

        Fewest violations; the least important of the most important victims; the smallest sum
        of priorities; fewest victims; of the most important victims' earliest starts, the latest.
        """
        first, count = self.pods[0], len(self.pods)
        priority, since = first.priority, started(first)
        total = sum([info.priority for info in self.pods]) + count * _OFFSET
        rank = self.violations << 33 | (priority + _OFFSET)
        rank = (rank << 64 | total) << 32 | count
        rank = rank << 63 | (0 if since == inf else _LATEST_US - int(since * 1e6))
        return rank.to_bytes(RANK.itemsize, "big")


@lru_cache(maxsize=65_536)
def _seconds(text: str) -> float:
    try:
        return timestamps.parse(text).timestamp()
    except timestamps.TimestampError:
        return inf


def started(info: PodInfo) -> float:
    """When the pod was started, in seconds since the epoch; infinite while it was not."""
    since = info.pod.status.start_time
    return _seconds(since) if since else inf


def pick_one(candidates: Sequence[Victims]) -> Victims:
    """The best by ``Victims.rank``; among equals the first."""
    return min(candidates, key=lambda victims: victims.rank)


def importance(info: PodInfo) -> tuple[int, float, str]:
    """A sort key: the most important pod first. Priority, then the longer run time.

    The UID decides between equals, since the order of a node's pods carries no meaning.
    """
    return -info.priority, started(info), info.uid


def select_victims(
    trial: DryRun,
    node: NodeInfo,
    budgets: DisruptionBudgets,
    *,
    nominated: Sequence[PodInfo] = (),
    patterns: Patterns | None = None,
) -> Victims | Status:
    """The victims on one node, or why preemption there does not help.

    Args:
        trial: of the preemptor; its snapshot is left as it was.
        node: an entry of the trial's snapshot.
        budgets: what may be disrupted.
        nominated: pods nominated to the node, which must fit together with this one.
        patterns: what was found for pods of the same class, where loads decide alone.

    Returns:
        The victims; or the refusal that stays when all of them are gone (``UNRESOLVABLE`` when there
        are none). A node that accepts the pod without any victim is an ``ERROR``.
    """
    limit = trial.pod.priority
    candidates = [info for info in node.pods if info.priority < limit]
    if not candidates:
        return NONE_BELOW
    candidates.sort(key=importance)
    violating: list[PodInfo] = []
    if budgets:
        violating, others = budgets.split(candidates)
        candidates = [*violating, *others]
    if patterns is None:
        gone = _reprieve(trial, node, candidates, nominated)
    else:
        gone = _known_pattern(trial, node, candidates, nominated, patterns)
    if isinstance(gone, Status):
        return gone
    if not gone:
        return Status(Code.ERROR, (f"no pod needs to go from node {node.name}",))
    victims = [candidates[at] for at in gone]
    if not violating:
        return Victims(node.name, tuple(victims))
    victims.sort(key=importance)
    return Victims(node.name, tuple(victims), sum(at < len(violating) for at in gone))


def _reprieve(
    trial: DryRun, node: NodeInfo, pods: Sequence[PodInfo], nominated: Sequence[PodInfo]
) -> tuple[int, ...] | Status:
    """The numbers of those that have to go when as many as can stay do, the first ones before others."""
    with trial.on(node) as what_if:
        for info in pods:
            what_if.remove(info)
        status = what_if.status(nominated)
        if not status.ok:
            return status
        gone = []
        for at, info in enumerate(pods):
            what_if.add(info)
            if not what_if.status(nominated).ok:
                what_if.remove(info)
                gone.append(at)
    return tuple(gone)


def _known_pattern(
    trial: DryRun,
    node: NodeInfo,
    pods: Sequence[PodInfo],
    nominated: Sequence[PodInfo],
    patterns: Patterns,
) -> tuple[int, ...] | Status:
    """As ``_reprieve``, once for all nodes and pods that are alike."""
    held = node.load.usage
    # Ports, disks and devices depend on who holds them, anti-affinity on labels.
    if held.ports or held.devices.tenants:
        return _reprieve(trial, node, pods, nominated)
    for info in nominated:
        if info.ports or info.disks or info.devices or info.has_required_anti_affinity:
            return _reprieve(trial, node, pods, nominated)
    # Pods that request the same mostly share one object, which is kept with its number.
    requests = [info.request for info in pods]
    if nominated:
        requests += [info.request for info in nominated]
    key = node.load, tuple(map(id, requests)), len(pods)
    found = patterns.get(key)
    if found is None:
        found = patterns[key] = _reprieve(trial, node, pods, nominated), requests
    return found[0]


# --- the search ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """How many candidates are enough: a share of the nodes where preemption might help, and a least number."""

    min_percentage: int = 10
    min_absolute: int = 100

    def wanted(self, nodes: int) -> int:
        """How many of so many nodes are enough."""
        return min(nodes, max(nodes * self.min_percentage // 100, self.min_absolute))


def dry_run(
    nodes: Sequence[T], wanted: int, evaluate: Callable[[T], Victims | Status]
) -> list[Victims]:
    """The candidates: first those that violate no budget, then the others, each as they were found."""
    clean: list[Victims] = []
    others: list[Victims] = []
    for node in nodes:
        found = evaluate(node)
        if isinstance(found, Status):
            continue
        (others if found.violations else clean).append(found)
        if clean and len(clean) + len(others) >= wanted:
            break
    return clean + others


def first_candidates(
    states: bytearray, start: int, wanted: int, evaluate: Callable[[int], None]
) -> int:
    """How many places hold the same candidates as ``dry_run`` finds, from what is known by place.

    Args:
        states: what is known of each place; they stand in the order in which nodes are tried.
        start: where the search starts; after the last place comes the first.
        wanted: how many candidates are enough.
        evaluate: finds out about a place that is unknown. It may be called for a few more than
            needed, which is not lost where what it finds is kept.
    """
    size, looked, found = len(states), 0, 0
    while looked < size:
        end = min(size, looked + max(_STEP, wanted - found))
        around = states[start:] + states[:start]
        at = around.find(UNKNOWN, looked, end)
        while at >= 0:
            evaluate((start + at) % size)
            at = around.find(UNKNOWN, at + 1, end)
        around = states[start:] + states[:start]
        clean = around.find(CLEAN, 0, end)
        found = end - around.count(UNHELPFUL, 0, end)
        if clean >= 0 and found >= wanted:
            enough = wanted  # every further place holds one more at most
            while (missing := wanted - enough + around.count(UNHELPFUL, 0, enough)) > 0:
                enough += missing
            return max(clean + 1, enough)
        looked = end
    return size


def least(ranks: Ranks, start: int, count: int) -> int:
    """The place of the least rank, of so many from ``start`` on; -1 if all have ``NO_RANK``.

    Among equals the first; after the last place comes the first.
    """
    if not count:
        return -1
    rest = max(0, start + count - len(ranks))
    around = np.concatenate([ranks[start : start + count], ranks[:rest]])
    best = int(around.argmin())
    return -1 if around[best] == NO_RANK else (start + best) % len(ranks)
