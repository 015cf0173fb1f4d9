"""Machines that a pool has lent to controllers that are gone.

A controller gives back what it was lent when it does not need it; one that was deleted, in the
middle of a transfer perhaps, cannot. So every process that runs the replication controller looks now and then
which holders are no controllers. Giving back is idempotent and names the holder, so several may.
"""

from collections.abc import Callable, Collection
from contextlib import suppress

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ID_LABEL
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.controllers.replication.machine_pool_scheduler import MachinePoolScheduler


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
                self._log.warning("machine of nobody given back", node=name, holder=holder)
