"""Follows attempts of containers by what their shims report, those of an earlier runtime included."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

from grange.agent.container_runtime import ContainerID
from grange.agent.runtimes.process import shim_connection
from grange.agent.runtimes.process.files import Layout
from grange.agent.runtimes.process.orphans import Undertaker
from grange.agent.runtimes.process.prepared_pod import PreparedPod
from grange.agent.runtimes.process.shim_connection import ContainerRun, ShimConnection
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

_RECONNECT_S = 1.0


class AttemptFollower:
    """Keeps what is known of attempts up to date.

    Args:
        layout: where attempts are on disk.
        undertaker: ends what lost shims left running.
        clock, log: time and the agent's logger.
        offload: for the disk.
        abandon: called when an attempt has ended, for commands that run in its container.
    """

    def __init__(
        self,
        layout: Layout,
        undertaker: Undertaker,
        *,
        clock: Clock,
        log: Logger,
        offload: Offload,
        abandon: Callable[[ContainerID], None],
    ) -> None:
        self._layout = layout
        self._undertaker = undertaker
        self._clock = clock
        self._log = log
        self._offload = offload
        self._abandon = abandon

    def listen(self, pod: PreparedPod, attempt: ContainerRun, connection: socket.socket) -> None:
        """Follow an attempt by what its shim reports."""
        attempt.connection = ShimConnection(
            connection, attempt.take, lambda: self._ended(pod, attempt)
        )

    def _ended(self, pod: PreparedPod, attempt: ContainerRun) -> None:
        """The shim is gone: it has reported how its program ended, or it was killed.

        The disk is read on the loop: a few hundred bytes that were written a moment ago.
        """
        if not attempt.refusal and (attempt.run is None or attempt.run.running):
            try:
                state = self._layout.read_state(attempt.target) or {}
                if "finished_at" not in state:
                    state = self._undertaker.bury(attempt.target, state)
            except OSError:  # no descriptor left? how it ended is on record: look again
                attempt.connection = None
                self._reconnect_later(pod, attempt)
                return
            attempt.take(state)
        attempt.finish()
        self._abandon(attempt.target)
        for changed in list(pod.watchers.values()):
            changed()

    async def adopt(self, pod: PreparedPod, target: ContainerID) -> None:
        """Take over an attempt that an earlier runtime started."""
        attempt = ContainerRun(target)
        try:
            connection = shim_connection.connect(self._layout.attempt(target))
        except OSError:
            pod.attempts.setdefault(target.container, []).append(attempt)
            self._reconnect_later(pod, attempt)
            return
        if connection is not None:
            pod.attempts.setdefault(target.container, []).append(attempt)
            self.listen(pod, attempt, connection)
            return
        state = await self._offload.run(lambda: self._layout.read_state(target))
        if state is None:  # asked for and never started
            await self._offload.run(lambda: self._undertaker.kill([target]))
            await self._offload.run(lambda: self._layout.remove_attempt(target))
            return
        if "finished_at" not in state:
            found = state
            state = await self._offload.run(lambda: self._undertaker.bury(target, found))
        pod.attempts.setdefault(target.container, []).append(attempt)
        attempt.take(state)
        attempt.finish()

    async def await_answers(self, adopted: Iterable[ContainerRun], limit_s: float) -> None:
        """Wait for the shims that were found; go by the disk for those that do not answer.

        Args:
            adopted: attempts that were taken over.
            limit_s: seconds to wait at most.
        """
        waiting = [attempt for attempt in adopted if not attempt.changed.is_set()]
        with suppress(TimeoutError):
            async with self._clock.timeout(limit_s):
                for attempt in waiting:
                    await attempt.changed.wait()
        for attempt in waiting:
            if not attempt.changed.is_set():
                await self._assume_running(attempt, limit_s)

    async def _assume_running(self, attempt: ContainerRun, waited_s: float) -> None:
        target = attempt.target
        state = await self._offload.run(lambda: self._layout.read_state(target)) or {}
        if attempt.changed.is_set():
            return  # it answered meanwhile
        if "finished_at" in state:  # stopped after its last word
            attempt.take(state)
            attempt.disconnect()
            attempt.finish()
            return
        attempt.take(shim_connection.unanswered(state, self._clock.now()))
        self._log.warning(
            "a container's supervisor does not answer",
            target=str(target),
            shim=attempt.shim[0],
            waited_s=waited_s,
        )

    def _reconnect_later(self, pod: PreparedPod, attempt: ContainerRun) -> None:
        loop = asyncio.get_running_loop()
        attempt.reconnect = loop.call_later(_RECONNECT_S, self._reconnect, pod, attempt)

    def _reconnect(self, pod: PreparedPod, attempt: ContainerRun) -> None:
        """Reach a shim that could not be reached; it may have ended meanwhile."""
        attempt.reconnect = None
        try:
            connection = shim_connection.connect(self._layout.attempt(attempt.target))
        except OSError:
            self._reconnect_later(pod, attempt)
            return
        if connection is None:
            self._ended(pod, attempt)
        else:
            self.listen(pod, attempt, connection)
