"""Looks at the machines of packed pools, again and again, and at all that a provider takes away."""

import asyncio
from collections.abc import Mapping

from grange.api.kinds.nodepool import DEDICATED
from grange.api.status import ApiError
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.disruption_pass import DisruptionPass, DisruptionState
from grange.machines.controller.machine_writes import MachineWrites
from grange.machines.controller.packed_pass import PackedPass, cluster_of
from grange.machines.controller.provider_table import ProviderTable
from grange.machines.disruption.disruption_progress import is_disrupted
from grange.machines.scaling.packing_options import PackedPool

_SOON_S = 2.0  # between looks while machines are disrupted, as each look takes one step


class DisruptionLoop:
    """Disrupts machines of packed pools; of all pools those that their provider takes away, or whose pool is deleted.

    Args:
        context: tools.
        packed: knows which pools can be planned for.
        providers: of the pools.
    """

    def __init__(
        self, context: NodeControllerContext, packed: PackedPass, providers: ProviderTable
    ) -> None:
        self._listers, self._clock, self._log = context.listers, context.clock, context.log
        self._interval_s = context.config.disruption_interval_s
        self._packed, self._providers = packed, providers
        self._pass = DisruptionPass(context.client, context.clock, MachineWrites(context).order)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A machine is to be disrupted."""
        self._woken.set()

    @property
    def kept(self) -> Mapping[str, str]:
        """Why machines stay, by name."""
        return self._pass.kept

    async def run(self) -> None:
        """Look until cancelled."""
        busy = False
        while True:
            try:
                async with self._clock.timeout(_SOON_S if busy else self._interval_s):
                    await self._woken.wait()
            except TimeoutError:
                pass  # it is time
            self._woken.clear()
            busy = False
            state = self._state()
            if state is None:
                continue
            try:
                busy = await self._pass.run(state)
            except ApiError as error:
                self._log.warning("disruption failed", error=error)

    def _state(self) -> DisruptionState | None:
        """What the caches show; None where nothing can be decided."""
        pools: list[PackedPool] = []
        for pool in self._listers.pools():
            if pool.spec.mode == DEDICATED or pool.metadata.deletion_timestamp is not None:
                continue
            watch = self._providers.usable(pool)
            _, usable = (None, None) if isinstance(watch, str) else self._packed.usable(pool, watch)
            if usable is not None:
                pools.append(usable)
        names = {pool.name for pool in pools}
        machines = [one for one in self._listers.machines() if one.spec.pool in names]
        taken = [one for one in self._listers.machines() if is_disrupted(one)]
        others = [one for one in taken if one.spec.pool not in names]
        if not machines and not others:
            return None
        return DisruptionState(
            pools,
            cluster_of(self._listers),
            machines,
            self._listers.pods(),
            self._listers.budgets(),
            others,
            [pool for pool in self._listers.pools() if pool.metadata.name not in names],
        )
