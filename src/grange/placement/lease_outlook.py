"""What the queue shows of a lease that waits: its place, why it waits, and when it may start.

The expected start is that of a queue in which no lease passes another: backfilling makes it earlier,
leases that last longer than expected make it later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from grange.base.first_few import first_few
from grange.base.plurals import be, counted
from grange.placement import lease_model as model
from grange.placement.lease_model import Blocked, MachineCounts, WaitingLease, expected_end
from grange.placement.lease_queue import LeaseQueue

_HOLDERS = 3
_REMEDY = "delete or move them (grange rc drain-node NAME NODE), or wait"
_FreeAt = tuple[float, bool]  # when a machine is free, and whether it has to boot first
_CLAIMING = Blocked("")
_NO_ESTIMATE = frozenset(
    {
        model.PAUSED,
        model.POOL_DRAINING,
        model.POOL_UNKNOWN,
        model.POOL_CAPACITY,
        model.SEMAPHORE,
        model.CONCURRENCY,
    }
)


@dataclass(frozen=True, slots=True)
class LeaseOutlook:
    """How a lease waits.

    Attributes:
        position: in the queue, from 1.
        reason: one word; empty if it is about to be granted.
        message: the same for people.
        expected_start: seconds; None where nothing can be estimated.
    """

    request: WaitingLease
    position: int
    reason: str
    message: str
    expected_start: float | None


def outlooks(queue: LeaseQueue, now: float) -> Iterator[LeaseOutlook]:
    """All leases that wait, in the order of the queue."""
    reasons: dict[str, Blocked] = {}
    decision = queue.decide(now, whole=True)
    granted = {request.uid for request in decision.granted}
    for uid, blocked in decision.blocked.items():
        for like in queue.classmates(uid):
            if like not in granted:
                reasons[like] = blocked
    starts = _Starts(queue, now)
    holders: dict[str, str] = {}
    for position, request in enumerate(queue.in_order(now), start=1):
        why = reasons.get(request.uid, _CLAIMING)
        start = None if why.reason in _NO_ESTIMATE else starts.start(request)
        text = message(queue, request, why, holders)
        yield LeaseOutlook(request, position, why.reason, text, start)


def message(
    queue: LeaseQueue, request: WaitingLease, blocked: Blocked, holders: dict[str, str]
) -> str:
    """Why a request waits, with pool, asked, free, capacity and holders where these matter.

    ``holders`` is filled as needed: who has the machines of pools.
    """
    what, asked = blocked.what, dict(request.need).get(blocked.what, 0)
    counts = queue.pools.get(what)
    text = "machines are being claimed"
    match blocked.reason:
        case model.POOL_AVAILABILITY if counts is not None:
            if what not in holders:
                holders[what] = _held_by(queue, what)
            text = (
                f"pool {what} has {counts.free} of {counted(counts.usable, 'machine')} free and {asked} "
                f"{be(asked)} requested{holders[what]}{_used_by(counts)}{_grows(counts)}"
            )
        case model.POOL_CAPACITY if counts is not None:
            text = (
                f"pool {what} has {counted(counts.usable, 'usable machine')} ({counts.total} in all) and "
                f"{asked} {be(asked)} requested; uncordon or repair nodes"
            )
        case model.POOL_UNKNOWN:
            text = unknown_pool(what)
        case model.POOL_DRAINING:
            text = f"pool {what} is being drained by the LeasePolicy"
        case model.SEMAPHORE:
            limit, taken = queue.policy.semaphores.get(what, 0), queue.semaphores.get(what, 0)
            text = f"semaphore {what} is taken {taken} of {counted(limit, 'time')}"
        case model.CONCURRENCY:
            granted = len(queue.granted)
            text = (
                f"{counted(granted, 'lease')} {be(granted)} granted, as many as maxGranted allows"
            )
        case model.PAUSED:
            text = "the queue is paused by the LeasePolicy"
        case model.BLOCKED_BY_HEAD:
            ahead = queue.waiting.get(blocked.by)
            who = (ahead.holder or ahead.uid) if ahead is not None else "an earlier lease"
            text = f"machines of pool {what} are kept for {who}, which is before it in the queue"
    return text


def unknown_pool(pool: str) -> str:
    """That no machine is in a pool."""
    return f'no machine has the label pool="{pool}"; label nodes or name another pool'


def _held_by(queue: LeaseQueue, pool: str) -> str:
    held = [f"{grant.holder or grant.uid} ({count})" for grant, count in queue.holders(pool)]
    if not held:
        return ""
    return f"; held by {first_few(held, _HOLDERS)}"


def _used_by(counts: MachineCounts) -> str:
    """The pods without a lease that keep machines from being granted."""
    if not counts.pods:
        return ""
    more = f" and {counts.busy - len(counts.pods)} more" if counts.busy > len(counts.pods) else ""
    return f"; used by pods {', '.join(counts.pods)}{more}: {_REMEDY}"


def _grows(counts: MachineCounts) -> str:
    """What NodePools may add to a pool, or why they do not."""
    if counts.growth is None or not counts.growth.machines:
        return ""
    if counts.growth.refusal:
        return f"; it does not grow now: {counts.growth.refusal}"
    return f"; it can grow: {counts.growth.limit}"


class _Starts:
    """When machines of pools are expected to be free, as requests take them in turn."""

    def __init__(self, queue: LeaseQueue, now: float) -> None:
        self._queue, self._now = queue, now
        self._machines: dict[str, list[_FreeAt]] = {}

    def start(self, request: WaitingLease) -> float | None:
        """The request is next: when it is expected to start; None where nothing is known.

        So it is where machines have to boot first and none of the pool has done so before.
        """
        taken = {pool: self._take(pool, count) for pool, count in request.need}
        start = max(
            (self._is_there(request, pool, one) for pool, times in taken.items() for one in times),
            default=self._now,
        )
        duration = inf if request.expected_s is None else request.expected_s
        for pool, times in taken.items():
            for _ in times:
                heappush(self._machines[pool], (start + duration, False))
        boots = {pool for pool, times in taken.items() for _, is_new in times if is_new}
        unknown = any(self._boot_s(pool) is None for pool in boots)
        return None if unknown or start == inf else start

    def _is_there(self, request: WaitingLease, pool: str, machine: _FreeAt) -> float:
        """When a machine that a request takes can be granted; at once where its boot is not known."""
        free, is_new = machine
        boot_s = self._boot_s(pool)
        if not is_new or boot_s is None:
            return free
        return expected_end(request.requested or self._now, boot_s, self._now)

    def _boot_s(self, pool: str) -> float | None:
        counts = self._queue.pools.get(pool)
        return counts.growth.boot_s if counts is not None and counts.growth is not None else None

    def _take(self, pool: str, count: int) -> list[_FreeAt]:
        """The times when the next machines are free; infinite for those that are missing."""
        machines = self._machines.get(pool)
        if machines is None:
            machines = self._machines[pool] = self._known(pool)
        return [heappop(machines) if machines else (inf, False) for _ in range(count)]

    def _known(self, pool: str) -> list[_FreeAt]:
        counts = self._queue.pools.get(pool)
        free, new = (counts.free, counts.expected) if counts is not None else (0, 0)
        times = [(self._now, False)] * free
        times += [(self._now + (self._boot_s(pool) or 0.0), True)] * new
        for end, held in self._queue.ends(pool, self._now):
            times += [(end, False)] * held
        return sorted(times)
