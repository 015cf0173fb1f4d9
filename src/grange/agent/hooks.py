"""Runs the lifecycle hooks of containers concurrently with the worker, which they must not block.

One task a hook, child of the pod's nursery; it ends with the run that it belongs to.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from grange.agent.events import AgentReason
from grange.agent.lifecycle import ManagedContainer
from grange.agent.probe_answer import ProbeTarget
from grange.agent.prober import Prober
from grange.api.kinds.pod import LifecycleHandler, Probe
from grange.base.clock import Clock
from grange.base.tasks import Child, Nursery
from grange.reconcile.recorder import WARNING

_LIMIT_S = 86400  # hooks define no timeout
_RETRY_S = 1.0


class HookTools(Protocol):
    """The part of a worker's tools that hooks need."""

    @property
    def prober(self) -> Prober:
        """What runs commands and asks servers."""

    @property
    def clock(self) -> Clock:
        """Time."""


class Hooks:
    """The hooks of one pod's containers.

    Args:
        nursery: owns the tasks.
        tools: prober and clock.
        event: records an Event of the pod: its type, reason and message.
        changed: called after the end of a hook.
    """

    def __init__(
        self,
        nursery: Nursery,
        tools: HookTools,
        event: Callable[[str, AgentReason, str], None],
        changed: Callable[[], None],
    ) -> None:
        self._nursery = nursery
        self._prober = tools.prober
        self._clock = tools.clock
        self._event = event
        self._changed = changed
        self._tasks: dict[str, Child[None]] = {}

    def post_start(
        self, container: ManagedContainer, target: ProbeTarget, passed: Callable[[], None]
    ) -> bool:
        """Run the container's postStart hook; False if it has none.

        Args:
            container: that was started.
            target: its run.
            passed: called when the hook has succeeded; a failure makes the container unhealthy.
        """
        lifecycle = container.spec.lifecycle
        if lifecycle is None or lifecycle.post_start is None:
            return False

        async def done(why: str) -> None:
            container.post_starting = False
            if why:
                message = f"PostStartHook of container {container.name} failed: {why}"
                self._event(WARNING, AgentReason.FAILED_POST_START_HOOK, message)
                container.unhealthy = "FailedPostStartHook"
            else:
                passed()
            self._changed()

        container.post_starting = True
        self._start(lifecycle.post_start, target, done)
        return True

    def pre_stop(
        self,
        container: ManagedContainer,
        target: ProbeTarget,
        over: Callable[[ManagedContainer], Awaitable[None]],
    ) -> bool:
        """Run the container's preStop hook; False if it has none.

        Args:
            container: that is to be stopped.
            target: its run.
            over: called at the end of the hook: SIGTERM comes then.
        """
        lifecycle = container.spec.lifecycle
        if lifecycle is None or lifecycle.pre_stop is None:
            return False
        container.pre_stopping = True
        self._start(lifecycle.pre_stop, target, lambda why: self._pre_stopped(container, why, over))
        return True

    async def give_up(
        self, container: ManagedContainer, over: Callable[[ManagedContainer], Awaitable[None]]
    ) -> None:
        """The preStop hook has used up the grace period."""
        self.stop(container.name)
        why = "it did not come to its end within the grace period"
        await self._pre_stopped(container, why, over)

    async def _pre_stopped(
        self,
        container: ManagedContainer,
        why: str,
        over: Callable[[ManagedContainer], Awaitable[None]],
    ) -> None:
        if why:
            message = f"PreStopHook of container {container.name} failed: {why}"
            self._event(WARNING, AgentReason.FAILED_PRE_STOP_HOOK, message)
        await over(container)

    def _start(
        self,
        handler: LifecycleHandler,
        target: ProbeTarget,
        done: Callable[[str], Awaitable[None]],
    ) -> None:
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
