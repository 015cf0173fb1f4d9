"""Notices ends of containers, and logs that are too long, by looking at them from time to time."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from grange.agent.runtimes.cri import cri_requests, cri_status
from grange.agent.runtimes.cri.cri_client import CriClient, CriError
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.cri_files import CriFiles
from grange.agent.runtimes.cri.cri_pod import CriAttempt, CriPod
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

_UNANSWERED = (
    "the process that answers its bind(2) and connect(2) has ended (grange-seccomp, killed); "
    "without it the container could do neither and was killed"
)
_ROTATE_EVERY = 40  # looks at the containers


class ContainerWatch:
    """Looks at the containers of pods.

    Args:
        pods: there are now.
        read_status: asks how a container is; True if it has ended.
        config: how often, and how long logs may be.
        files: of the pods.
        clock, log, offload: of the runtime.
    """

    def __init__(
        self,
        pods: Callable[[], Iterable[CriPod]],
        read_status: Callable[[CriAttempt], Awaitable[bool]],
        config: CriConfig,
        files: CriFiles,
        *,
        clock: Clock,
        log: Logger,
        offload: Offload,
    ) -> None:
        self._pods = pods
        self._read_status = read_status
        self._config = config
        self._files = files
        self._clock = clock
        self._log = log
        self._offload = offload
        self._owner = cri_requests.owner_of(config.data_dir)
        self._is_reachable = True

    async def run(self, client: CriClient) -> None:
        """Notice ends: list the containers from time to time, while any of them runs."""
        looks = 0
        while True:
            await self._clock.sleep(self._config.look_s)
            running = [
                (pod, attempt)
                for pod in self._pods()
                for attempt in pod.all_attempts()
                if attempt.is_running
            ]
            if not running:
                continue
            looks += 1
            try:
                await self._look(client, running)
                if looks % _ROTATE_EVERY == 0:
                    await self._rotate(client, running)
            except CriError as error:
                if self._is_reachable:
                    self._log.warning("container runtime cannot be asked", error=error.message)
                self._is_reachable = False
                continue
            self._is_reachable = True

    async def _look(self, client: CriClient, running: list[tuple[CriPod, CriAttempt]]) -> None:
        mine = {"filter": {"label_selector": {cri_requests.OWNER: self._owner}}}
        listed = (await client.call("ListContainers", mine)).get("containers") or []
        alive = {
            str(item.get("id", ""))
            for item in listed
            if int(item.get("state", 0)) == cri_status.RUNNING
        }
        for pod, attempt in running:
            if attempt.container_id not in alive and await self._read_status(attempt):
                pod.wake()
            elif attempt.is_running and attempt.is_unanswered and not attempt.is_stopping:
                await self._kill(client, attempt)

    async def _kill(self, client: CriClient, attempt: CriAttempt) -> None:
        """Without answers it can neither bind nor connect; its successor has a new seccomp agent."""
        facts = {"target": str(attempt.target)}
        request = {"container_id": attempt.container_id, "timeout": 0}
        attempt.kill_message = _UNANSWERED
        try:
            await client.call("StopContainer", request, self._config.kill_limit_s)
        except CriError as error:  # the next look tries again; others are not to wait for it
            self._log.warning("container not stopped", **facts, error=error.message)
            return
        attempt.is_stopping = True
        self._log.warning("killed a container whose seccomp agent has ended", **facts)

    async def _rotate(self, client: CriClient, running: list[tuple[CriPod, CriAttempt]]) -> None:
        limit, keep = self._config.log_max_bytes, self._config.log_files
        for _, attempt in running:
            target = attempt.target
            if await self._offload.run(partial(self._files.rotate, target, limit, keep)):
                await client.call("ReopenContainerLog", {"container_id": attempt.container_id})
