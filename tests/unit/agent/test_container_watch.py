"""The watch of containers goes on with the others where one cannot be stopped."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grange.agent.container_runtime import ContainerID, PodSetup, Run, Sandbox
from grange.agent.runtimes.cri import cri_client, cri_status
from grange.agent.runtimes.cri.container_watch import ContainerWatch
from grange.agent.runtimes.cri.cri_client import CriError
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.cri_files import CriFiles
from grange.agent.runtimes.cri.cri_pod import CriAttempt, CriPod, SeccompAgent
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline
from grange.base.tasks import Nursery


class StuckContainer:
    """A container runtime in which one container cannot be stopped."""

    def __init__(self, stuck: str, *running: str) -> None:
        self.stuck = stuck
        self.running = [stuck, *running]

    async def call(
        self, method: str, request: Mapping[str, Any], limit_s: float | None = None
    ) -> dict[str, Any]:
        if method == "StopContainer":
            if request["container_id"] == self.stuck:
                raise CriError(cri_client.TIMED_OUT, "it does not end")
            self.running.remove(request["container_id"])
        found = [{"id": each, "state": cri_status.RUNNING} for each in self.running]
        return {"containers": found}

    async def close(self) -> None:
        return None


def made(name: str, clock: Clock, agent: SeccompAgent | None) -> CriPod:
    target = ContainerID(name, "main", 0)
    attempt = CriAttempt(target, name, Run(target, clock.now()), seccomp_agent=agent)
    setup, sandbox = PodSetup(name, "default", name, "node-1"), Sandbox(name, "127.1.0.2", "/none")
    return CriPod(setup, sandbox, f"sandbox-{name}", attempts={"main": [attempt]})


async def test_container_that_cannot_be_stopped_delays_no_other(
    clock: Clock, log: Logger, tmp_path: Path
) -> None:
    gone = SeccompAgent(None)
    pods = [made("stuck", clock, gone), made("next", clock, gone), made("ended", clock, None)]
    client = StuckContainer("stuck", "next")

    async def read_status(attempt: CriAttempt) -> bool:
        assert attempt.run is not None
        return attempt.take(replace(attempt.run, finished_at=clock.now()))

    watch = ContainerWatch(
        lambda: pods,
        read_status,
        CriConfig(tmp_path, tmp_path / "socket"),
        CriFiles(tmp_path),
        clock=clock,
        log=log,
        offload=Inline(),
    )
    async with Nursery("watch") as nursery:
        child = nursery.start(watch.run(client))
        await clock.sleep(1)
        child.cancel()
    running = [pod.setup.name for pod in pods if pod.all_attempts()[0].is_running]
    assert running == ["stuck"]
