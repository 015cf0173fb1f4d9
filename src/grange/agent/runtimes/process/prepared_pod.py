"""A pod that the process runtime keeps, with the attempts of its containers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grange.agent.container_runtime import PodRecord, PodSetup, RuntimeFailedError, Sandbox
from grange.agent.pod_watchers import Watchers
from grange.agent.runtimes.process.shim_connection import ContainerRun
from grange.base.clock import Clock


@dataclass(slots=True)
class PreparedPod:
    """A prepared pod.

    Attributes:
        setup: what it was prepared with.
        sandbox: its address and directories.
        attempts: of each container, the newest last.
        watchers: called after every end of a run.
        ending: nothing is started any more.
    """

    setup: PodSetup
    sandbox: Sandbox
    attempts: dict[str, list[ContainerRun]] = field(default_factory=dict)
    watchers: Watchers = field(default_factory=dict)
    ending: bool = False

    def all_attempts(self) -> list[ContainerRun]:
        """Those of all containers."""
        return [attempt for items in self.attempts.values() for attempt in items]

    def joined_process(self, container: str) -> int:
        """Id of a process in the namespaces of a container; zero where it has none to itself.

        Args:
            container: its name; empty for none.

        Raises:
            RuntimeFailedError: it does not run.
        """
        if not container:
            return 0
        attempts = self.attempts.get(container)
        if not attempts or attempts[-1].ended.is_set() or attempts[-1].run is None:
            raise RuntimeFailedError(
                f"container {container} does not run: its processes cannot be shared"
            )
        return attempts[-1].run.pid if attempts[-1].is_isolated else 0

    def record(self) -> PodRecord:
        """The pod as the seam has it."""
        runs = tuple(item.run for item in self.all_attempts() if item.run is not None)
        return PodRecord(self.setup, self.sandbox, runs)


async def end(clock: Clock, pods: Sequence[PreparedPod], number: int, limit_s: float) -> None:
    """Signal whatever runs and wait until it has ended, or for so long."""
    waiting = [i for pod in pods for i in pod.all_attempts() if i.connection or i.reconnect]
    for attempt in waiting:
        if attempt.connection is not None:
            attempt.connection.signal(number)
    try:
        async with clock.timeout(limit_s):
            for attempt in waiting:
                await attempt.ended.wait()
    except TimeoutError:
        return
