"""Pools of whole machines: what there is, and who has how many. Plain values and one ledger.

Semantics follow the reservation manager of grpc/test-infra's orchestrator: all machines that a
session needs or none, with errors in a fixed precedence. Its counting without names is replaced by a
ledger, so that releasing twice, or after a pool was resized, cannot create machines.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock  # noqa: TID251  guards plain values; nothing waits under it
from types import MappingProxyType
from typing import Protocol

from grange.api.kinds.machine import DISRUPTED_TAINT_KEY
from grange.api.kinds.machinelease import POOL_LABEL, pool_of
from grange.api.kinds.node import Node
from grange.base.errors import GrangeError
from grange.base.plurals import be, counted

_NOTHING: Mapping[str, int] = MappingProxyType({})


class ReservationError(GrangeError):
    """Machines could not be reserved; nothing is."""


class PoolUnknownError(ReservationError):
    """A pool is needed that was not added.

    Args:
        dedicated: a dedicated NodePool whose machines have the label; empty for none.
    """

    def __init__(self, pool: str, dedicated: str = "") -> None:
        why = f'no machine has the label {POOL_LABEL}="{pool}"; label nodes or name another pool'
        if dedicated:
            why = (
                f"pool {pool} is that of NodePool {dedicated}, whose machines are handed to pods one "
                "by one (mode Dedicated); use a NodePool of mode Packed"
            )
        super().__init__(why)
        self.pool = pool


class PoolCapacityError(ReservationError):
    """More machines of a pool are needed than it has; this can never be granted as the pool is.

    Args:
        limit: what bounds the capacity of a pool that can grow; empty for another pool.
    """

    def __init__(self, pool: str, requested: int, capacity: int, limit: str = "") -> None:
        why = (
            f"pool {pool} has {counted(capacity, 'machine')} and {requested} {be(requested)} requested; "
            "add machines or request fewer"
        )
        if limit:
            why = (
                f"pool {pool} can have {counted(capacity, 'machine')} at most ({limit}) and "
                f"{requested} {be(requested)} requested; raise the limits or request fewer"
            )
        super().__init__(why)
        self.pool = pool
        self.requested = requested
        self.capacity = capacity


class PoolAvailabilityError(ReservationError):
    """More machines of a pool are needed than are free now; try again later."""

    def __init__(self, pool: str, requested: int, available: int) -> None:
        super().__init__(
            f"pool {pool} has {counted(available, 'machine')} free and {requested} {be(requested)} requested"
        )
        self.pool = pool
        self.requested = requested
        self.available = available


@dataclass(frozen=True, slots=True)
class Pool:
    """Identical machines, counted.

    Attributes:
        name: value of the node label ``pool``.
        available: machines that can be reserved now.
    """

    name: str
    available: int
    capacity: int


class PoolAdder(Protocol):
    """Can add and remove pools."""

    def add_pool(self, pool: Pool) -> None:
        """Add a pool, or replace the one of its name."""

    def remove_pool(self, pool: Pool) -> None:
        """Remove the pool of this name.

        Raises:
            PoolUnknownError: there is none.
        """


class ReservationTracker(Protocol):
    """Limits the sessions that run by the machines that are free."""

    def reserve(self, holder: str, need: Mapping[str, int]) -> None:
        """Reserve all machines that are needed, by pool, or none.

        Raises:
            PoolUnknownError: of the first unknown pool in the order of ``need``.
            PoolCapacityError: of the first pool by name that is too small.
            PoolAvailabilityError: of the first pool by name with too few free machines.
        """

    def unreserve(self, holder: str, need: Mapping[str, int] = _NOTHING) -> None:
        """Give back what the holder has; does nothing where it has nothing.

        Raises:
            PoolUnknownError: ``need`` names a pool that was not added and of which it has nothing.
        """


class ReservationManager:
    """Pools, and a ledger of who has how many machines of which.

    Implements ``PoolAdder`` and ``ReservationTracker``. Every call either does all of its work or
    raises and changes nothing; threads may call at the same time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._capacity: dict[str, int] = {}
        self._unusable: dict[str, int] = {}  # machines that are neither free nor in the ledger
        self._held: dict[str, dict[str, int]] = {}

    def add_pool(self, pool: Pool) -> None:
        """Add a pool, or replace the one of its name; what is reserved of it stays reserved.

        ``pool.available`` counts the machines that are free on top of those in the ledger. Of a pool
        that has become too small for what is reserved nothing is free until enough is given back.
        """
        with self._lock:
            self._capacity[pool.name] = pool.capacity
            in_use = self._in_use(pool.name)
            self._unusable[pool.name] = max(0, pool.capacity - pool.available - in_use)

    def remove_pool(self, pool: Pool) -> None:
        """Remove the pool of this name; what is reserved of it is given back as usual.

        Raises:
            PoolUnknownError: there is none.
        """
        with self._lock:
            if self._capacity.pop(pool.name, None) is None:
                raise PoolUnknownError(pool.name)
            del self._unusable[pool.name]

    def pools(self) -> dict[str, Pool]:
        """The pools by name, as they are now."""
        with self._lock:
            return {name: self._pool(name) for name in self._capacity}

    def held(self, holder: str) -> dict[str, int]:
        """The machines that the holder has, by pool; empty for none."""
        with self._lock:
            return dict(self._held.get(holder, ()))

    def reserve(self, holder: str, need: Mapping[str, int]) -> None:
        """Reserve all machines that are needed, by pool, or none.

        A holder that has a reservation keeps it, and the call does nothing.

        Raises:
            PoolUnknownError: of the first unknown pool in the order of ``need``.
            PoolCapacityError: of the first pool by name that is too small.
            PoolAvailabilityError: of the first pool by name with too few free machines.
        """
        need = {pool: count for pool, count in need.items() if count}
        with self._lock:
            if holder in self._held:
                return
            for name in need:
                if name not in self._capacity:
                    raise PoolUnknownError(name)
            pools = [self._pool(name) for name in sorted(need)]
            for pool in pools:
                if need[pool.name] > pool.capacity:
                    raise PoolCapacityError(pool.name, need[pool.name], pool.capacity)
            for pool in pools:
                if need[pool.name] > pool.available:
                    raise PoolAvailabilityError(pool.name, need[pool.name], pool.available)
            self._held[holder] = need

    def unreserve(self, holder: str, need: Mapping[str, int] = _NOTHING) -> None:
        """Give back what the holder has; does nothing where it has nothing.

        ``need``, what it is taken to have, is only checked.

        Raises:
            PoolUnknownError: ``need`` names a pool that was not added and of which it has nothing.
        """
        with self._lock:
            held = self._held.get(holder, {})
            for name in need:
                if name not in self._capacity and name not in held:
                    raise PoolUnknownError(name)
            self._held.pop(holder, None)

    def _pool(self, name: str) -> Pool:
        capacity = self._capacity[name]
        available = capacity - self._unusable[name] - self._in_use(name)
        return Pool(name, max(0, available), capacity)

    def _in_use(self, name: str) -> int:
        return sum(need.get(name, 0) for need in self._held.values())


def find_pools(nodes: Iterable[Node]) -> dict[str, Pool]:
    """The pools that the labels of nodes define, by name, all of their machines available.

    Nodes without the label, or of a dedicated NodePool, are ignored, and so are those that are cordoned, not ready or
    about to be taken away: no pod can run there. An empty label counts as none.
    """
    counts = Counter(name for node in nodes if (name := pool_of(node)) and is_usable(node))
    return {name: Pool(name, count, count) for name, count in counts.items()}


def is_usable(node: Node) -> bool:
    """Whether the node is ready, not cordoned, and its machine is not about to be taken away."""
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
    closed = node.spec.unschedulable or is_disrupted_node(node)
    return ready and not closed and node.metadata.deletion_timestamp is None


def is_disrupted_node(node: Node) -> bool:
    """Whether the node controller takes the machine of a node away."""
    return any(taint.key == DISRUPTED_TAINT_KEY for taint in node.spec.taints)
