"""Nodes from a pool of machines: what a controller is given belongs to it until it gives it back.

``MachinePool`` is the least that a pool must do; the contract suite in ``tests/contract`` says what
that means, and every implementation passes it.
"""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.controllers.replication.scheduling import AllocationRefused, Look, Scheduler

T = TypeVar("T")

_PATIENCE_S = 5.0
_PAUSE_S = 5.0  # after silence; thousands of controllers would wait one after another


class PoolSilent(GrangeError):
    """The pool does not answer in time: it is asked again later."""


class PoolExhausted(GrangeError):
    """The pool has no machine that fits and may not make one: add machines or raise its limit."""


class StaleRequest(GrangeError):
    """The pool has heard from a later owner of the holder: whoever asks owns it no more."""


class MachinePool(Protocol):
    """Lends machines, which are known by the names of their nodes.

    Every request carries an id. What was lent under an id stays lent under it until it is released,
    and asking again under the same id gives the same machines.

    Every request that changes something carries an epoch, too. The pool remembers the highest that it
    has heard for each holder and refuses lower ones: a request of an owner that is no longer the
    owner, or that was long on its way, changes nothing once its successor has spoken.
    """

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        """Lend machines; they may still be on their way to becoming nodes.

        Args:
            request_id: idempotency key.
            holder: uid of who gets them.
            demand: whose node selector and template they must fit.
            count: how many; all or none.
            epoch: of whoever asks on the holder's behalf.

        Returns:
            Names of the nodes, sorted.

        Raises:
            PoolExhausted: not so many can be lent; nothing is.
            StaleRequest: the epoch is over; nothing is lent.
        """

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        """Take machines back that the holder has; others are left alone.

        Raises:
            StaleRequest: the epoch is over; nothing is taken back.
        """

    async def holders(self) -> Mapping[str, str]:
        """Every machine of the pool by node name: uid of its holder, or empty."""


def epoch_of(version: str) -> int:
    """The epoch of a request: the version of the controller that it was decided on.

    An owner takes a controller over by writing to it, so versions rise from owner to owner. Zero for one
    that is not a number: such requests are fenced by nothing.
    """
    return int(version) if version.isdecimal() else 0


class MachinePoolScheduler:
    """Eligibility by node selectors, and further nodes from a pool.

    A machine of the pool is eligible for its holder alone; nodes that the pool does not know are
    eligible by their labels, as without a pool.

    Args:
        base: judges the nodes there are.
        pool: provides more.
        clock: for patience with the pool.
    """

    def __init__(self, base: Scheduler, pool: MachinePool, clock: Clock) -> None:
        self._base = base
        self._pool = pool
        self._clock = clock
        self._known: dict[str, str] | None = None
        self._silent_until = 0.0

    async def look(self) -> Look:
        """The eligible nodes of now; by what is known of the pool while it is silent.

        Raises:
            GrangeError: the pool has trouble, and nothing is known of it.
        """
        try:
            holders = await self._holders()
        except GrangeError:
            if self._known is None:
                raise
            holders = self._known
        base = await self._base.look()

        def eligible(controller: ReplicationController) -> Sequence[str]:
            uid = controller.metadata.uid
            return [name for name in base(controller) if holders.get(name, uid) == uid]

        return eligible

    async def eligible_nodes(self, controller: ReplicationController) -> Sequence[str]:
        """Names of the eligible nodes, sorted; by what is known of the pool while it is silent.

        Raises:
            GrangeError: the pool has trouble, and nothing is known of it.
        """
        return (await self.look())(controller)

    async def allocate_nodes(
        self, controller: ReplicationController, count: int, *, request_id: str
    ) -> Sequence[str]:
        """Ask the pool for machines.

        Raises:
            AllocationRefused: the pool has none.
            GrangeError: the pool has trouble.
        """
        uid = controller.metadata.uid
        epoch = epoch_of(controller.metadata.resource_version)
        asked = self._pool.claim(
            request_id, holder=uid, demand=controller, count=count, epoch=epoch
        )
        try:
            given = await self._answer(asked)
        except PoolExhausted as error:
            raise AllocationRefused(f"{controller.key}: {error}") from error
        self._note(given, uid)
        return given

    async def allocated_nodes(self, controller: ReplicationController) -> Sequence[str]:
        """Names of the machines that the pool has lent to the controller."""
        uid = controller.metadata.uid
        return [name for name, held in (await self._holders()).items() if held == uid]

    async def deallocate_nodes(
        self, controller: ReplicationController, names: Sequence[str]
    ) -> None:
        """Give machines back; nodes that the pool did not lend to the controller are ignored."""
        meta = controller.metadata
        await self.release(names, holder=meta.uid, version=meta.resource_version)

    async def release(self, names: Sequence[str], *, holder: str, version: str) -> None:
        """Give back machines of a holder that need not be there any more.

        Args:
            names: of the machines.
            holder: its uid.
            version: of the holder, or of the list that it is missing from.

        Raises:
            GrangeError: the pool has trouble, or has heard from a later owner.
        """
        self._note([name for name in names if self._known and name in self._known], "")
        await self._answer(self._pool.release(names, holder=holder, epoch=epoch_of(version)))

    async def holders(self) -> Mapping[str, str]:
        """Every machine of the pool by node name: uid of its holder, or empty."""
        return await self._holders()

    async def _holders(self) -> Mapping[str, str]:
        if self._clock.monotonic() < self._silent_until:
            raise PoolSilent("the pool of machines was silent a moment ago")
        try:
            self._known = dict(await self._answer(self._pool.holders()))
        except PoolSilent:
            self._silent_until = self._clock.monotonic() + _PAUSE_S
            raise
        return self._known

    def _note(self, names: Sequence[str], holder: str) -> None:
        if self._known is not None:
            self._known.update(dict.fromkeys(names, holder))

    async def _answer(self, asked: Awaitable[T]) -> T:
        try:
            async with self._clock.timeout(_PATIENCE_S):
                return await asked
        except TimeoutError as error:
            raise PoolSilent(f"the pool of machines did not answer in {_PATIENCE_S:g} s") from error
