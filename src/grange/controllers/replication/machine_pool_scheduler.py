"""Eligibility of nodes by node selectors, and further nodes from a pool of machines."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.controllers.replication.node_eligibility import AllocationRefused, Look, Scheduler
from grange.reconcile.machine_pool import MachinePool, PoolExhausted, epoch_of

T = TypeVar("T")

_PATIENCE_S = 5.0
_PAUSE_S = 5.0  # after silence; thousands of controllers would wait one after another


class PoolSilent(GrangeError):
    """The pool does not answer in time: it is asked again later."""


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
