"""How much each queue uses, and whether it may use more.

A pod counts from the moment it is given a node until it has ended. A queue may use its capacity. In
a cohort it may use more, up to its borrowing limit, as long as the cohort as a whole does not use
more than all its queues' capacities together; so what one borrows is what others leave unused.
Resources that a queue does not name are not limited.

A *claim* is what a gang or pod that waits and comes first will need. Those that come after it are
admitted only if both fit. It counts where its queue shares now: cohorts may change meanwhile. What
could not be had even if nothing were in use is not claimed any more.

Amounts are whole numbers: thousandths of a CPU, bytes, units. Synchronous; pods are UIDs here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from grange.api import quantity
from grange.api.kinds.queue import Queue
from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from grange.placement.node_usage import asked_amounts

Amounts = Mapping[str, int]
Rank = tuple[float, float]
"""Priority (negated) and age: the smaller comes first."""


def amounts(need: Resources) -> dict[str, int]:
    """What a pod's request counts as."""
    return {**dict(asked_amounts(need)), PODS: 1}


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum of amounts."""
    found: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


def subtract(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    """What is left of amounts; resources without any left are left out."""
    left = {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def read(listed: Mapping[str, int | float | str]) -> dict[str, int]:
    """Amounts from quantities.

    Raises:
        QuantityError: one is no quantity.
    """
    return {
        name: quantity.milli(amount) if name == CPU else quantity.value(amount)
        for name, amount in listed.items()
    }


def shown(name: str, amount: int) -> str:
    """An amount as users write it."""
    if name == CPU:
        return quantity.format_milli(amount)
    if name in (MEMORY, EPHEMERAL_STORAGE):
        return quantity.format_binary(amount)
    return str(amount)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a queue may use.

    Attributes:
        capacity: by resource.
        cohort: which queues it shares with; empty for none.
        limits: how much may be borrowed, where that is limited.
    """

    capacity: Amounts
    cohort: str = ""
    limits: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, queue: Queue) -> "Grant":
        """The grant that an object makes.

        Raises:
            QuantityError: an amount is no quantity.
        """
        spec = queue.spec
        return cls(read(spec.capacity), spec.cohort, read(spec.borrowing_limit))

    def limited(self, wanted: Amounts) -> list[str]:
        """The resources that are wanted and limited."""
        return [name for name in self.capacity if wanted.get(name, 0)]

    def most(self, name: str) -> float:
        """How much of a limited resource the queue may use in all."""
        borrowed = self.limits.get(name, inf) if self.cohort else 0
        return self.capacity[name] + borrowed


@dataclass(frozen=True, slots=True)
class QuotaClaim:
    """What a gang or pod that comes first will need."""

    queue: str
    wanted: Amounts
    rank: Rank


class Quotas:
    """What all queues may use and use.

    Attributes:
        freed: queues that may admit more than before, or whose cohort may, until ``take_freed``.
    """

    def __init__(self) -> None:
        self.freed: dict[str, None] = {}
        self._grants: dict[str, Grant] = {}
        self._used: dict[str, dict[str, int]] = {}  # by queue and resource
        self._charged: dict[str, dict[str, Amounts]] = {}  # by queue and UID
        self._queues: dict[str, str] = {}  # by UID
        self._claims: dict[str, QuotaClaim] = {}  # by owner

    # --- what is granted and used ------------------------------------------------------------

    def grant(self, queue: str, grant: Grant | None) -> None:
        """Add, change or (None) remove a queue."""
        if self._grants.get(queue) == grant:
            return
        before = self.peers(queue)
        if grant is None:
            del self._grants[queue]
        else:
            self._grants[queue] = grant
        self.freed[queue] = None
        after = self.peers(queue)
        for peer in before:
            if peer not in after:
                # What the queue claimed or used, it does no more in their cohort.
                self.freed[peer] = None
        for owner, claim in [*self._claims.items()]:
            if self.impossible(claim.queue, claim.wanted):
                self.unclaim(owner)

    def charge(self, uid: str, queue: str, wanted: Amounts) -> None:
        """Count a pod that has a node; again changes nothing unless the queue differs."""
        if self._queues.get(uid) == queue:
            return
        self.release(uid)
        self._queues[uid] = queue
        wanted = subtract(wanted, {})
        self._charged.setdefault(queue, {})[uid] = wanted
        self._used[queue] = total([self.used(queue), wanted])

    def release(self, uid: str) -> None:
        """Stop counting a pod that has ended or lost its node; an unknown one is fine."""
        queue = self._queues.pop(uid, None)
        if queue is None:
            return
        charged = self._charged[queue]
        self._used[queue] = subtract(self._used[queue], charged.pop(uid))
        if not charged:
            del self._used[queue], self._charged[queue]
        self.freed[queue] = None

    def take_freed(self) -> tuple[str, ...]:
        """The queues that may admit more than at the last call."""
        freed = tuple(self.freed)
        self.freed.clear()
        return freed

    def clear(self) -> None:
        """Forget all pods and claims, before they are all added again."""
        self._queues.clear()
        self._charged.clear()
        self._used.clear()
        for owner in [*self._claims]:
            self.unclaim(owner)

    def used(self, queue: str) -> Amounts:
        """What the queue uses, by resource."""
        return self._used.get(queue, {})

    def limited(self, queue: str, amounts: Amounts) -> dict[str, int]:
        """Of amounts, those of the resources that the queue limits."""
        grant = self._grants.get(queue)
        return {} if grant is None else {name: amounts.get(name, 0) for name in grant.capacity}

    def count(self, queue: str) -> int:
        """How many pods count against it, those that an admitted gang is to have included."""
        return sum(amounts.get(PODS, 1) for amounts in self.charged(queue).values())

    def borrowed(self, queue: str) -> Amounts:
        """What it uses above its capacity."""
        grant = self._grants.get(queue)
        return (
            {} if grant is None else subtract(self.limited(queue, self.used(queue)), grant.capacity)
        )

    def peers(self, queue: str) -> tuple[str, ...]:
        """The queues that share with it, itself among them."""
        grant = self._grants.get(queue)
        if grant is None or not grant.cohort:
            return (queue,)
        return tuple(name for name, other in self._grants.items() if other.cohort == grant.cohort)

    # --- whether more may be used ------------------------------------------------------------

    def refusal(self, queue: str, wanted: Amounts, rank: Rank | None = None) -> str:
        """Why the queue cannot admit so much now; empty when it can.

        Args:
            queue: its name.
            wanted: in all.
            rank: the place in line: claims that come before it count as used. None ignores claims.
        """
        grant = self._grants.get(queue)
        if grant is None:
            return f"queue {queue} does not exist"
        claim = self._claim_before(queue, rank)
        claimed: Amounts = {} if claim is None else claim.wanted
        is_own = claim is not None and claim.queue == queue
        asked = grant.limited(wanted)
        own = total([wanted, self.used(queue), claimed if is_own else {}])
        short = [name for name in asked if own[name] > grant.most(name)]
        if short:
            lacking = listed(short, own, grant.capacity)
            return f"over quota of queue {queue}: {lacking}, {_terms(grant, short)}"
        if not grant.cohort:
            return ""
        whole = total([wanted, self._cohort_use(grant.cohort), claimed])
        capacity = self._cohort_capacity(grant.cohort)
        short = [name for name in asked if whole[name] > capacity[name]]
        if not short:
            return ""
        found = [name for name in self.peers(queue) if name != queue and self.borrowed(name)]
        borrowers = f", queues that borrow: {', '.join(found)}" if found else ""
        return f"over quota of cohort {grant.cohort}: {listed(short, whole, capacity)}{borrowers}"

    def impossible(self, queue: str, wanted: Amounts) -> bool:
        """Whether the queue could not admit so much even if nothing were in use."""
        grant = self._grants.get(queue)
        if grant is None:
            return True
        together = self._cohort_capacity(grant.cohort) if grant.cohort else grant.capacity
        return any(
            wanted[name] > min(together[name], grant.most(name)) for name in grant.limited(wanted)
        )

    def remedy(self, queue: str, wanted: Amounts) -> str:
        """What to do where the queue could not admit so much even if nothing were in use; else empty."""
        if queue not in self._grants or not self.impossible(queue, wanted):
            return ""
        return f"it can never fit: ask for less, or raise spec.capacity of queue {queue}"

    def entitled(self, queue: str, wanted: Amounts) -> bool:
        """Whether so much more would still be within the queue's own capacity."""
        grant = self._grants.get(queue)
        together = total([self.used(queue), wanted])
        return grant is not None and all(
            together[name] <= grant.capacity[name] for name in grant.limited(wanted)
        )

    def shortage(self, queue: str, wanted: Amounts) -> dict[str, int]:
        """How much the queue's cohort would use beyond its capacity with so much more."""
        grant = self._grants.get(queue)
        if grant is None or not grant.cohort:
            return {}
        together = total([wanted, self._cohort_use(grant.cohort)])
        short = subtract(together, self._cohort_capacity(grant.cohort))
        return {name: amount for name, amount in short.items() if name in grant.limited(wanted)}

    def charged(self, queue: str) -> Mapping[str, Amounts]:
        """By UID, what the pods use that count against the queue."""
        return self._charged.get(queue, {})

    def charge_of(self, uid: str) -> tuple[str, Amounts]:
        """The queue that a pod counts against, and what it uses; an empty name for none."""
        queue = self._queues.get(uid, "")
        return queue, self.charged(queue).get(uid, {})

    def shown_use(self, queue: str, uids: Iterable[str]) -> dict[str, str]:
        """What some pods use of the resources that their queue limits, as users write it."""
        charged = self.charged(queue)
        used = self.limited(queue, total(charged[uid] for uid in uids if uid in charged))
        return {name: shown(name, amount) for name, amount in sorted(used.items()) if amount}

    def claim(self, owner: str, queue: str, wanted: Amounts, rank: Rank) -> None:
        """From now on, what comes after ``rank`` is admitted only if this fits, too.

        Args:
            owner: the key of the gang or UID of the pod; its earlier claim is replaced.
            queue: where.
            wanted: how much.
            rank: of the owner.
        """
        self._claims[owner] = QuotaClaim(queue, wanted, rank)

    def renew(self, owner: str, wanted: Amounts, rank: Rank) -> None:
        """Change what an owner claims, or its rank; without a claim nothing happens."""
        known = self._claims.get(owner)
        if known is not None and (known.wanted, known.rank) != (wanted, rank):
            self._claims[owner] = QuotaClaim(known.queue, wanted, rank)
            self.freed[known.queue] = None
            if self.impossible(known.queue, wanted):
                del self._claims[owner]

    def unclaim(self, owner: str) -> None:
        """Drop a claim; an owner without one is fine."""
        claim = self._claims.pop(owner, None)
        if claim is not None:
            self.freed[claim.queue] = None

    # --- inside ------------------------------------------------------------------------------

    def _claim_before(self, queue: str, rank: Rank | None) -> QuotaClaim | None:
        """The first claim of those that share with the queue, if its owner comes before that."""
        if rank is None or not self._claims:
            return None
        peers = self.peers(queue)
        claims = [claim for claim in self._claims.values() if claim.queue in peers]
        first = min(claims, key=lambda claim: claim.rank, default=None)
        return None if first is None or rank <= first.rank else first

    def _cohort_capacity(self, cohort: str) -> dict[str, int]:
        grants = self._grants.values()
        return total(grant.capacity for grant in grants if grant.cohort == cohort)

    def _cohort_use(self, cohort: str) -> dict[str, int]:
        """By the queues that name the resource: only they have a share in it."""
        return total(
            self.limited(queue, self.used(queue))
            for queue, grant in self._grants.items()
            if grant.cohort == cohort
        )


def _terms(grant: Grant, short: Iterable[str]) -> str:
    if not grant.cohort:
        return "borrowing none"
    limits = [shown(name, grant.limits.get(name, 0)) for name in short]
    return f"borrowing at most {', '.join(limits)}"


def listed(short: Iterable[str], use: Amounts, capacity: Amounts) -> str:
    """Of each of these resources how much there is, and of how much."""
    return ", ".join(
        f"{name} {shown(name, use[name])} of {shown(name, capacity[name])}" for name in short
    )
