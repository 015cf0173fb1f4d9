"""What the runtime remembers of a pod and of its containers' attempts."""

import asyncio
import socket
from dataclasses import dataclass, field, replace

from grange.agent.container_runtime import (
    ContainerID,
    PodRecord,
    PodSetup,
    Run,
    RuntimeFailedError,
    Sandbox,
)
from grange.agent.pod_watchers import Watchers


class SeccompAgent:
    """The process that answers programs of a pod at bind(2); it ends some time after ``close``.

    Args:
        connection: to it, which does not block; None for one that is gone.
    """

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection

    def is_alive(self) -> bool:
        """Whether it still answers."""
        if self._connection is None:
            return False
        try:
            self._connection.recv(1)  # it sends nothing: this is its end
        except BlockingIOError:
            return True
        except OSError:  # reset
            pass
        self.close()
        return False

    def close(self) -> None:
        """Leave it to the programs that it answers."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(slots=True, eq=False)
class CriAttempt:
    """One attempt of a container.

    Attributes:
        target: which.
        container_id: the runtime's name for it; empty until it is created.
        run: None until it is started.
        ended: set when the run has ended.
        is_stopping: SIGTERM was sent, and a call waits for the end.
        seccomp_agent: answers its programs at bind(2); None if they do not ask.
        kill_message: why the agent killed it, where no user asked for that.
        refusal: why it was not started when its programs were to ask.
    """

    target: ContainerID
    container_id: str = ""
    run: Run | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopping: bool = False
    seccomp_agent: SeccompAgent | None = None
    kill_message: str = ""
    refusal: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.run is not None and self.run.running

    @property
    def is_unanswered(self) -> bool:
        """Whether its programs ask at bind(2), and who answers them has ended."""
        return self.seccomp_agent is not None and not self.seccomp_agent.is_alive()

    def take(self, run: Run) -> bool:
        """Take over what the runtime reports; True if the run has ended with that."""
        was_over = self.ended.is_set()
        if not was_over:
            self.run = run
            if not run.running:
                self.run = replace(run, message=self.kill_message or run.message)
                self.ended.set()
        return not was_over and self.ended.is_set()


@dataclass(slots=True, eq=False)
class CriPod:
    """A prepared pod.

    Attributes:
        setup, sandbox: what was asked for and given.
        sandbox_id: the runtime's name for the sandbox.
        sandbox_attempt: how many sandboxes it has had before.
        attempts: by container, oldest first.
        watchers: called after every end of a run.
        ending: nothing is started any more.
        lock: one call at a time prepares, starts or removes.
        seccomp_agent: the newest one; None before a container needs one.
    """

    setup: PodSetup
    sandbox: Sandbox
    sandbox_id: str
    sandbox_attempt: int = 0
    attempts: dict[str, list[CriAttempt]] = field(default_factory=dict)
    watchers: Watchers = field(default_factory=dict)
    ending: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    seccomp_agent: SeccompAgent | None = None

    def all_attempts(self) -> list[CriAttempt]:
        """Of all containers."""
        return [attempt for items in self.attempts.values() for attempt in items]

    def attempt(self, target: ContainerID) -> CriAttempt | None:
        """The attempt, if it is remembered."""
        found = self.attempts.get(target.container, ())
        return next((item for item in found if item.target == target), None)

    def container_id_of(self, container: str) -> str:
        """The runtime's name for a container that runs; empty where none is named.

        Raises:
            RuntimeFailedError: it does not run.
        """
        if not container:
            return ""
        attempts = self.attempts.get(container)
        if not attempts or not attempts[-1].is_running:
            raise RuntimeFailedError(
                f"container {container} does not run: its processes cannot be shared"
            )
        return attempts[-1].container_id

    def record(self) -> PodRecord:
        """What others may know of it."""
        runs = tuple(item.run for item in self.all_attempts() if item.run is not None)
        return PodRecord(self.setup, self.sandbox, runs)

    def wake(self) -> None:
        """Call the watchers."""
        for changed in list(self.watchers.values()):
            changed()
