"""What decides about machine leases: requests, grants, machines, and why a request is blocked."""

from dataclasses import dataclass
from math import inf

from grange.api.kinds.leasepolicy import LeasePolicySpec
from grange.placement.pool_growth import PoolGrowth

POOL_UNKNOWN = "PoolUnknown"
POOL_CAPACITY = "PoolCapacity"
POOL_AVAILABILITY = "PoolAvailability"
POOL_DRAINING = "PoolDraining"
SEMAPHORE = "Semaphore"
PAUSED = "Paused"
CONCURRENCY = "Concurrency"
BLOCKED_BY_HEAD = "BlockedByHead"

_OVERDUE_SHARE = 0.1  # what has lasted longer than expected lasts so much longer still


@dataclass(frozen=True, slots=True)
class WaitingLease:
    """A lease that waits.

    Attributes:
        namespace: whose share counts.
        need: machines by pool, in the order of the lease; each pool once.
        priority: higher ones go first.
        created: when, in seconds.
        semaphores: limits of which it takes one each.
        expected_s: how long it will have the machines; None where nothing is known.
        requested: since when machines are requested for it, in seconds; None where none are.
    """

    uid: str
    namespace: str
    need: tuple[tuple[str, int], ...]
    priority: int = 0
    created: float = 0.0
    semaphores: tuple[str, ...] = ()
    expected_s: float | None = None
    holder: str = ""
    requested: float | None = None


@dataclass(frozen=True, slots=True)
class GrantedLease:
    """A lease that has machines.

    Attributes:
        namespace, semaphores, expected_s, holder: as of a ``WaitingLease``.
        started: when it was granted, in seconds.
    """

    uid: str
    namespace: str
    held: tuple[tuple[str, int], ...]
    semaphores: tuple[str, ...] = ()
    started: float = 0.0
    expected_s: float | None = None
    holder: str = ""

    def end(self, now: float) -> float:
        """When it is expected to end; infinite where nothing is known."""
        if self.expected_s is None:
            return inf
        return expected_end(self.started, self.expected_s, now)


def expected_end(started: float, expected_s: float, now: float) -> float:
    """When something ends that takes so long by expectation: never in the past."""
    end = started + expected_s
    return end if end > now else now + _OVERDUE_SHARE * (now - started)


@dataclass(frozen=True, slots=True)
class MachineCounts:
    """Machines of a pool.

    Attributes:
        free: can be granted now.
        usable: ready and not cordoned, leased or not.
        total: all that bear the pool's label.
        busy: have no lease, but pods.
        pods: one of each of the first busy machines, as ``namespace/name``.
        growth: what NodePools may add; None where none makes machines of the pool.
    """

    free: int
    usable: int
    total: int
    busy: int = 0
    pods: tuple[str, ...] = ()
    growth: PoolGrowth | None = None

    @property
    def more(self) -> int:
        """How many machines may be added."""
        return self.growth.machines if self.growth is not None else 0

    @property
    def expected(self) -> int:
        """How many machines are likely to be added for those that wait."""
        return 0 if self.growth is None or self.growth.refusal else self.growth.machines

    @property
    def capacity(self) -> int:
        """How many machines there can be."""
        return self.total + self.more

    def grown(self) -> "MachineCounts":
        """The pool once all was added that may be."""
        more = self.more
        return MachineCounts(
            self.free + more, self.usable + more, self.total + more, self.busy, self.pods
        )


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a lease is not granted.

    Attributes:
        what: the pool or semaphore that it waits for.
        by: uid of the lease that it must not pass.
    """

    reason: str
    what: str = ""
    by: str = ""


def is_aged(request: WaitingLease, policy: LeasePolicySpec, now: float) -> bool:
    """Whether a lease has waited for so long that nothing that could delay it may pass it."""
    return now - request.created >= policy.aging_seconds
