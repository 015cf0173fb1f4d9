"""Selection of victims: those on one node, which nodes are looked at, and which of them is the best.

On a node all less important pods are removed first; then as many as possible are reprieved, the most
important first, and before all others those whose eviction would violate a disruption budget.

Looking at every node of a large cluster costs more than the best of all nodes is worth, so the
search starts at an offset and stops when it has a share of them, but not before one is found
that violates no disruption budget, if there is any.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TypeVar

import msgspec

from grange.api import timestamps
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.dry_run import DryRun, WhatIf
from grange.scheduler.framework import Code, Status
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo

T = TypeVar("T")

UNKNOWN, UNHELPFUL, VIOLATING, CLEAN = range(4)  # what is known of a node
_STEP = 64  # nodes at a time, when few more are wanted
NO_VICTIMS = "No preemption victims found for incoming pod"
Rank = int
NO_RANK: Rank = 1 << 256  # after all others
# A pod and its ``importance``; the UID is unique, so the pods themselves are never compared.
RankedPod = tuple[int, float, str, PodInfo]

_OFFSET = 1 << 31  # makes every priority positive, so that fewer victims never sum to more
_LATEST_US = 1 << 62
_NONE = Status(Code.UNRESOLVABLE, (NO_VICTIMS,))


class Victims(msgspec.Struct, frozen=True):
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
        gone = sorted(self.pods, key=importance)
        return rank_of([(*importance(info), info) for info in gone], self.violations)


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


def rank_of(gone: Sequence[RankedPod], violations: int) -> Rank:
    """The ``Victims.rank`` of pods, the most important first; one number, as many are compared."""
    count = len(gone)
    # Of the most important ones, the one that started earliest is the first.
    priority, since, _, _ = gone[0]
    # Mostly they are equally important.
    alike = gone[-1][0] == priority
    total = count * priority if alike else sum([one[0] for one in gone])
    rank = violations << 33 | (_OFFSET - priority)
    rank = (rank << 64 | (count * _OFFSET - total)) << 32 | count
    return rank << 63 | (0 if since == inf else _LATEST_US - int(since * 1e6))


def pick_one(candidates: Sequence[Victims]) -> Victims:
    """The best by ``Victims.rank``; among equals the first.

    Args:
        candidates: at least one, in the order in which they were found.
    """
    return min(candidates, key=lambda victims: victims.rank)


def importance(info: PodInfo) -> tuple[int, float, str]:
    """A sort key: the most important pod first. Priority, then the longer run time.

    The UID decides between equals, since the order of a node's pods carries no meaning.
    """
    return -info.pod.spec.priority, started(info), info.uid


def lower_priority_pods(pods: Iterable[PodInfo], limit: int) -> list[RankedPod]:
    """The pods whose priority is below a limit, with their importance, in the given order."""
    found: list[RankedPod] = []
    for info in pods:
        pod = info.pod
        priority = pod.spec.priority
        if priority < limit:
            since = pod.status.start_time
            found.append((-priority, _seconds(since) if since else inf, info.uid, info))
    return found


def select_victims(
    trial: DryRun,
    node: NodeInfo,
    budgets: DisruptionBudgets,
    *,
    nominated: Sequence[PodInfo] = (),
) -> Victims | Status:
    """The victims on one node, or why preemption there does not help.

    Args:
        trial: of the preemptor; its snapshot is left as it was.
        node: an entry of the trial's snapshot.
        budgets: what may be disrupted.
        nominated: pods nominated to the node, which must fit together with this one.

    Returns:
        The victims; or the refusal that stays when all of them are gone (``UNRESOLVABLE`` when there
        are none). A node that accepts the pod without any victim is an ``ERROR``.
    """
    limit = trial.pod.pod.spec.priority
    candidates = [info for info in node.pods if info.pod.spec.priority < limit]
    if not candidates:
        return _NONE
    with trial.on(node) as what_if:
        for info in candidates:
            what_if.remove(info)
        status = what_if.status(nominated)
        if not status.ok:
            return status
        candidates.sort(key=importance)
        first, others = budgets.split(candidates)
        violating = _reprieve(what_if, first, nominated)
        gone = violating + _reprieve(what_if, others, nominated)
    if not gone:
        return Status(Code.ERROR, (f"no pod needs to go from node {node.name}",))
    gone.sort(key=importance)
    return Victims(node.name, tuple(gone), len(violating))


def _reprieve(
    what_if: WhatIf, pods: Sequence[PodInfo], nominated: Sequence[PodInfo]
) -> list[PodInfo]:
    """Add pods again that can stay, in this order; return the others."""
    gone = []
    for info in pods:
        what_if.add(info)
        if not what_if.status(nominated).ok:
            what_if.remove(info)
            gone.append(info)
    return gone


# --- the search ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """How many candidates are enough.

    Attributes:
        min_percentage: of the nodes where preemption might help.
        min_absolute: at least so many, where there are so many.
    """

    min_percentage: int = 10
    min_absolute: int = 100

    def wanted(self, nodes: int) -> int:
        """How many of so many nodes are enough."""
        return min(nodes, max(nodes * self.min_percentage // 100, self.min_absolute))


def dry_run(
    nodes: Sequence[T], wanted: int, evaluate: Callable[[T], Victims | Status]
) -> list[Victims]:
    """The candidates: first those that violate no budget, then the others, as they were found.

    Args:
        nodes: the nodes where preemption might help, in the order in which they are tried.
        wanted: how many candidates are enough.
        evaluate: the victims on a node, or why there are none.
    """
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
    size = len(states)
    looked = found = 0
    clean = 0  # how many places it takes to come by the first such one
    while looked < size:
        at = (start + looked) % size
        end = min(at + max(_STEP, wanted - found), size if at >= start else start)
        unknown = states.find(UNKNOWN, at, end)
        while unknown >= 0:
            evaluate(unknown)
            unknown = states.find(UNKNOWN, unknown + 1, end)
        if not clean:
            first = states.find(CLEAN, at, end)
            if first >= 0:
                clean = looked + first - at + 1
        here = end - at - states.count(UNHELPFUL, at, end)
        if clean and found + here >= wanted:
            return max(clean, looked + _stretch(states, at, end, wanted - found))
        found += here
        looked += end - at
    return looked


def _stretch(states: bytearray, at: int, end: int, wanted: int) -> int:
    """How many places from one on hold so many candidates; there are as many before the end."""
    low = max(0, wanted)
    high = end - at
    while low < high:
        middle = (low + high) // 2
        if middle - states.count(UNHELPFUL, at, at + middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low
