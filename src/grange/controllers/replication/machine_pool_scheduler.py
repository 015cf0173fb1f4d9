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
from grange.controllers.replication.node_eligibility import (
    AllocationRefused,
    EligibleNodes,
    NodeScheduler,
)
from grange.controllers.replication.podtemplate import LeaseTolerations
from grange.reconcile.machine_pool import MachinePool, PoolExhausted, epoch_of

T = TypeVar("T")

_TIMEOUT_S = 5.0
_PAUSE_S = 5.0  # after a timeout: thousands of controllers would wait one after another


class PoolSilent(GrangeError):
    """The pool does not answer in time: try again later."""


class MachinePoolScheduler:
    """Eligibility by node selectors, and further nodes from a pool.

    A machine of the pool is eligible for its holder only; other nodes are eligible by their labels.
    """

    def __init__(
        self,
        base: NodeScheduler,
        pool: MachinePool,
        clock: Clock,
        leased: LeaseTolerations | None = None,
    ) -> None:
        self._leased = leased or LeaseTolerations()
        self._base = base
        self._pool = pool
        self._clock = clock
        self._known: dict[str, str] | None = None
        self._silent_until = 0.0

    async def eligible_nodes(self) -> EligibleNodes:
        """The eligible nodes of now; by the last known holders while the pool does not answer.

        Raises:
            GrangeError: the pool fails, and no holders are known.
        """
        try:
            holders = await self.holders()
        except GrangeError:
            if self._known is None:
                raise
            holders = self._known
        base = await self._base.eligible_nodes()
        if not holders:
            return base

        def eligible(controller: ReplicationController) -> Sequence[str]:
            uid = controller.metadata.uid
            names = base(self._leased.tolerating(controller))
            return [name for name in names if holders.get(name, uid) == uid]

        return eligible

    async def allocate_nodes(
        self, controller: ReplicationController, count: int, *, request_id: str
    ) -> Sequence[str]:
        """Claim machines of the pool.

        Raises:
            AllocationRefused: the pool has none.
            GrangeError: the pool fails.
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
        """Names of the machines that the controller holds."""
        uid = controller.metadata.uid
        return [name for name, held in (await self.holders()).items() if held == uid]

    async def deallocate_nodes(
        self, controller: ReplicationController, names: Sequence[str]
    ) -> None:
        """Release machines; nodes that the controller does not hold are ignored."""
        meta = controller.metadata
        await self.release(names, holder=meta.uid, version=meta.resource_version)

    async def release(self, names: Sequence[str], *, holder: str, version: str) -> None:
        """Release machines of a holder, which may be gone.

        Args:
            names: of the machines.
            holder: its uid.
            version: of the holder, or of the list in which it is missing.

        Raises:
            GrangeError: the pool fails, or knows a later version.
        """
        self._note([name for name in names if self._known and name in self._known], "")
        await self._answer(self._pool.release(names, holder=holder, epoch=epoch_of(version)))

    async def holders(self) -> Mapping[str, str]:
        """Every machine of the pool by node name: uid of its holder, or empty.

        Raises:
            GrangeError: the pool fails, or did not answer a moment ago.
        """
        if self._clock.monotonic() < self._silent_until:
            raise PoolSilent("the pool of machines did not answer a moment ago")
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
            async with self._clock.timeout(_TIMEOUT_S):
                return await asked
        except TimeoutError as error:
            raise PoolSilent(f"the pool of machines did not answer in {_TIMEOUT_S:g} s") from error


class MachineCollector:
    """Releases machines whose holders are gone, once no replica runs there."""

    def __init__(
        self, pool: MachinePoolScheduler, client: Client, *, clock: Clock, log: Logger
    ) -> None:
        self._pool = pool
        self._client = client
        self._clock = clock
        self._log = log
        self._missed: set[str] = set()

    async def run(self, rng: Stream, every_s: float, present: Callable[[], set[str]]) -> None:
        """Sweep until cancelled, every so many seconds, plus or minus a tenth."""
        while True:
            await self._clock.sleep(rng.uniform(0.9, 1.1) * every_s)
            with suppress(GrangeError):  # the next sweep tries again
                await self.sweep(present())

    async def sweep(self, present: Collection[str]) -> None:
        """Sweep once; ``present`` are the uids of the controllers that the lister has.

        A holder must be missing twice in a row: a lister may be empty by mistake.

        Raises:
            GrangeError: the pool or the server does not answer; try again later.
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
