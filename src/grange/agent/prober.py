"""Asks one question of a probe: over sockets, or with a command in the container."""

from typing import Protocol

from grange.agent.container_runtime import PodRuntime
from grange.agent.probe_answer import Answer, ProbeTarget, not_asked, reason_of
from grange.agent.probe_types import PROBE_TYPES, ProbeType, type_of
from grange.api.kinds.pod import Probe
from grange.base.clock import Clock


class Prober(Protocol):
    """Asks one question of a probe."""

    async def ask(self, probe: Probe, target: ProbeTarget) -> Answer:
        """The answer; a failure to get one is an answer as well. Never raises but on cancel."""


class SystemProber:
    """Asks as the probe's type does; see ``probe_types``.

    Args:
        runtime: for commands.
        clock: for the timeout.
    """

    def __init__(self, runtime: PodRuntime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock

    async def ask(self, probe: Probe, target: ProbeTarget) -> Answer:
        """Ask once, within ``timeoutSeconds``."""
        found = type_of(probe)
        if found is None:
            return Answer(ok=False, message=f"the probe has none of {', '.join(PROBE_TYPES)}")
        limit_s = float(max(1, probe.timeout_seconds))
        try:
            return await self._ask(found, probe, target, limit_s)
        except TimeoutError:
            return Answer(ok=False, message=f"no answer within {limit_s:g}s")
        except OSError as error:
            return not_asked(error) or Answer(ok=False, message=reason_of(error))
        except Exception as error:  # noqa: BLE001  any manifest and any program
            return Answer(ok=False, message=f"the probe cannot be asked: {reason_of(error)}")

    async def _ask(
        self, type_: ProbeType, probe: Probe, target: ProbeTarget, limit_s: float
    ) -> Answer:
        if type_.ends_itself:
            return await type_.ask(probe, target, self._runtime, limit_s)
        async with self._clock.timeout(limit_s):
            return await type_.ask(probe, target, self._runtime, limit_s)
