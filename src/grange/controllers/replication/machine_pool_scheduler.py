"""Eligibility of nodes by node selectors, and further nodes from a pool of machines.

A controller releases machines that it does not need; one that was deleted during a transfer cannot. So every
process that runs the replication controller looks now and then for machines whose holders are gone. Releasing
is idempotent and names the holder, so several processes may do it.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ID_LABEL, ReplicationController
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.controllers.replication.node_eligibility import AllocationRefused, Look, NodeScheduler
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

    def __init__(self, base: NodeScheduler, pool: MachinePool, clock: Clock) -> None:
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


class MachineCollector:
    """Finds machines whose holders are gone, and gives them back when no replica runs there.

    Args:
        pool: who lent them.
        client: what is there now, when a cache says that a holder is not.
        clock: for the time between two looks.
        log: what was given back.
    """

    def __init__(
        self, pool: MachinePoolScheduler, client: Client, *, clock: Clock, log: Logger
    ) -> None:
        self._pool = pool
        self._client = client
        self._clock = clock
        self._log = log
        self._missed: set[str] = set()

    async def run(self, rng: Stream, every_s: float, present: Callable[[], set[str]]) -> None:
        """Look every so often until cancelled.

        Args:
            rng: spreads the looks of several processes.
            every_s: seconds between two looks, give or take a tenth.
            present: uids of the controllers that the cache shows.
        """
        while True:
            await self._clock.sleep(rng.uniform(0.9, 1.1) * every_s)
            with suppress(GrangeError):  # it is asked again in the next round
                await self.sweep(present())

    async def sweep(self, present: Collection[str]) -> None:
        """Look once. A holder has to be missing twice in a row: views empty by mistake, too.

        Args:
            present: uids of the controllers that the cache shows.

        Raises:
            GrangeError: pool or server do not answer; look again later.
        """
        holders = await self._pool.holders()
        missing = {uid for uid in holders.values() if uid and uid not in present}
        before, self._missed = self._missed, missing
        gone = missing & before
        if not gone:
            return
        listed = await self._client.list(REPLICATIONCONTROLLER)
        gone -= {item.metadata.uid for item in listed.items}
        pods = (await self._client.list(POD, labels=ID_LABEL)).items
        used = {pod.spec.node_name for pod in pods}
        for name, holder in holders.items():
            if holder in gone and name not in used:
                await self._pool.release([name], holder=holder, version=listed.resource_version)
                self._log.warning("released orphaned machine", node=name, holder=holder)
