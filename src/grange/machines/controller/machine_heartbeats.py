"""Ends available machines that have been silent for too long, and looks after what is to end."""

from collections.abc import Awaitable, Callable

from grange.api.kinds.node import is_ready
from grange.api.kinds.nodepool import NodePool
from grange.api.machine_phases import MachinePhase
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.machine_health import MachineHealth

_P = MachinePhase
_ENDING = frozenset({_P.CLEANING, _P.TERMINATING, _P.TERMINATED})


class MachineHeartbeats:
    """Two loops: over the health of machines, and over machines that end.

    Claimed machines are not judged here: nodelifecycle evicts the pods of a silent node, and a machine
    whose pod is gone is given back.

    Args:
        context: tools.
        terminate: sets ``spec.terminate`` of a machine.
        wake: has a machine looked at.
    """

    def __init__(
        self,
        context: NodeControllerContext,
        terminate: Callable[[str], Awaitable[bool]],
        wake: Callable[[str], None],
    ) -> None:
        self._listers, self._events, self._config = context.listers, context.events, context.config
        self._clock, self._log, self._metrics = context.clock, context.log, context.metrics
        self._terminate, self._wake = terminate, wake
        self.health = MachineHealth(context.config.unhealthy_share)

    async def beat(self) -> None:
        """Judge until cancelled."""
        while True:
            for pool in self._listers.pools():
                await self.judge(pool)
            await self._clock.sleep(self._config.heartbeat_interval_s)

    async def reap(self) -> None:
        """Have machines that end looked at until cancelled, whatever became of the last look."""
        while True:
            for machine in self._listers.machines():
                if machine.is_ending or machine.phase in _ENDING:
                    self._wake(machine.metadata.name)
            await self._clock.sleep(self._config.reaper_interval_s)

    async def judge(self, pool: NodePool) -> None:
        """End the machines of a pool that have been silent for too long, unless they are too many."""
        name = pool.metadata.name
        answering = {}
        for machine in self._listers.machines_of(name):
            if machine.phase is _P.AVAILABLE and not machine.is_ending:
                node = self._listers.node_of(machine)
                answering[machine.metadata.name] = node is not None and is_ready(node)
        healthy_s = float(pool.spec.timeouts.healthy_seconds)
        verdict = self.health.look(name, answering, healthy_s, self._clock.monotonic())
        self._metrics.braked(name, braked=bool(verdict.braked))
        if verdict.braked:
            share = f"{self._config.unhealthy_share:.0%}"
            message = f"more than {share} of {len(answering)} machines are silent: none is ended"
            self._events.braked(pool, message)
        for silent in verdict.unhealthy:
            self._log.warning("silent machine is ended", machine=silent, pool=name)
            machine_found = self._listers.machine(silent)
            if await self._terminate(silent) and machine_found is not None:
                self._events.unhealthy(machine_found, f"silent for {healthy_s:g} s")
