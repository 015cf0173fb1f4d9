"""Runs the lifecycle hooks of containers concurrently with the worker, which they must not block.

One task a hook, child of the pod's nursery; it ends with the run that it belongs to.
"""

from collections.abc import Awaitable, Callable

from grange.agent.probe_answer import ProbeTarget
from grange.agent.prober import Prober
from grange.api.kinds.pod import LifecycleHandler, Probe
from grange.base.clock import Clock
from grange.base.tasks import Child, Nursery

_LIMIT_S = 86400  # hooks define no timeout
_RETRY_S = 1.0


class Hooks:
    """The hooks of one pod's containers.

    Args:
        nursery: owns the tasks.
        prober: runs commands and asks servers.
        clock: for sleeping.
    """

    def __init__(self, nursery: Nursery, prober: Prober, clock: Clock) -> None:
        self._nursery = nursery
        self._prober = prober
        self._clock = clock
        self._tasks: dict[str, Child[None]] = {}

    def start(
        self,
        handler: LifecycleHandler,
        target: ProbeTarget,
        done: Callable[[str], Awaitable[None]],
    ) -> None:
        """Run a hook of a container.

        Args:
            handler: what to do.
            target: the running container.
            done: called at its end with why it failed, or with nothing.
        """
        self.stop(target.container.name)

        async def run() -> None:
            await done(await self._run(handler, target))

        name = target.container.name
        self._tasks[name] = self._nursery.start(run(), name=f"hook {name}")

    def stop(self, container: str) -> None:
        """The run ended, or the hook has taken too long: give it up."""
        task = self._tasks.pop(container, None)
        if task is not None:
            task.cancel()

    async def _run(self, handler: LifecycleHandler, target: ProbeTarget) -> str:
        if handler.sleep is not None:
            await self._clock.sleep(float(handler.sleep.seconds))
            return ""
        if handler.exec is None and handler.http_get is None:
            return "it has none of exec, httpGet and sleep"
        probe = Probe(exec=handler.exec, http_get=handler.http_get, timeout_seconds=_LIMIT_S)
        while True:
            answer = await self._prober.ask(probe, target)
            if answer.ok is not None:
                # As in Kubernetes, any answer of the server is a success.
                return "" if answer.ok or answer.code else answer.message
            await self._clock.sleep(_RETRY_S)  # it is the agent that lacks something
