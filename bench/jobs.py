"""Jobs from submission to the end: the job controller on a server, and nodes that act at once.

Everything runs in this process, as in ``grange up``: a SQLite store on a real directory, the API server, the
controller and the nodes, which report a pod as Running as soon as they see it, as Succeeded when they are
to end, and as gone when it is deleted. Pods name their node, so that no scheduler takes part. Processor time
is that of all of them.

Alone: ``python -m bench.jobs``.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvloop

from grange.api.kinds import GANGJOB, POD
from grange.api.kinds.gangjob import GangJob
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound
from grange.app import gc_tuning
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.reconcile.informer import Informer
from grange.sim.api_fixture import ApiFixture, opened
from grange.store.sqlite import SQLiteStore

JOBS, PODS = 1_000, 8
LARGE, HUGE = 5_000, 15_000
FINISHED = 10_000
REST_S = 10.0
LIMIT_S = 300.0
_WORKERS = 32
_SETTLE_S = 3.0


def job(name: str, replicas: int) -> Document:
    container: Document = {"name": "main", "command": ["work"]}
    template: Document = {"spec": {"containers": [container], "nodeName": "node"}}
    rule: Document = {"action": "RestartJob", "onExitCodes": {"operator": "In", "values": [42]}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicaSpecs": {
                "worker": {"replicas": replicas, "restartPolicy": "Never", "template": template}
            },
            "runPolicy": {"cleanPodPolicy": "All", "schedulingPolicy": {"backend": "None"}},
            "failurePolicy": {"maxRestarts": 3, "rules": [rule]},
        },
    }


class Laps:
    """Seconds since the last lap, by the clock and of the processor."""

    def __init__(self) -> None:
        self._at = self._now()

    def lap(self, key: str) -> dict[str, float]:
        """Both as figures, and start the next lap."""
        before, self._at = self._at, self._now()
        wall, cpu = (now - then for now, then in zip(self._at, before, strict=True))
        return {f"{key}_s": wall, f"{key}_cpu_s": cpu}

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


class Nodes:
    """Start pods and confirm their deletion."""

    def __init__(self, client: Client, pods: Informer[Pod]) -> None:
        self._client = client
        self._queue: asyncio.Queue[Pod] = asyncio.Queue()
        self.pods = pods
        self.ends = False
        pods.add_handler(self._queue.put_nowait, lambda _, new: self._queue.put_nowait(new))

    async def run(self) -> None:
        """Act on pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())

    def end_all(self) -> None:
        """Let all pods succeed, from now on."""
        self.ends = True
        for pod in self.pods.store.list():
            self._queue.put_nowait(pod)

    async def report(self, pod: Pod, phase: str, exit_code: int = 0) -> None:
        """Write a pod's phase."""
        meta, status = pod.metadata, {"phase": phase}
        conditions = [{"type": "Ready", "status": str(phase == "Running")}]
        document: Document = {**status, "conditions": conditions}
        if phase != "Running":
            state = {"terminated": {"exitCode": exit_code, "reason": "Ended"}}
            document["containerStatuses"] = [
                {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
                | {"state": state}
            ]
        await self._client.patch(
            POD, meta.name, meta.namespace, patch={"status": document}, subresource="status"
        )

    async def _work(self) -> None:
        while True:
            pod = await self._queue.get()
            meta, phase = pod.metadata, pod.status.phase
            with suppress(NotFound, Conflict):  # replaced by another of its name meanwhile
                if meta.deletion_timestamp:
                    if meta.deletion_grace_period_seconds:
                        await self._client.delete(
                            POD, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0
                        )
                elif phase in ("", "Pending"):
                    await self.report(pod, "Running")
                elif phase == "Running" and self.ends:
                    await self.report(pod, "Succeeded")


class Bench:
    """A server, a controller and nodes in one process."""

    def __init__(self, fixture: ApiFixture) -> None:
        deps, mine = fixture.new_deps(), fixture.new_deps()
        self.client = fixture.client
        self.jobs: Informer[GangJob] = mine.informers.informer(GANGJOB)
        self.nodes = Nodes(mine.client, mine.informers.informer(POD))
        for run in (deps.informers.run, mine.informers.run, self.nodes.run):
            fixture.nursery.start(run())
        fixture.start(JobService(deps, GANGJOB_ADAPTER))

    async def submit(self, jobs: int, replicas: int) -> None:
        for number in range(jobs):
            await self.client.create(GANGJOB, job(f"job-{number}", replicas), "default")

    async def until_all(self, phase: str, active: int = 0) -> None:
        """Wait for all jobs to be in a phase, with so many active pods each."""

        def reached(item: GangJob) -> bool:
            status = item.status
            roles = status.replica_statuses.values()
            return status.phase == phase and sum(role.active for role in roles) == active

        await until(lambda: all(map(reached, self.jobs.store.list())))


@asynccontextmanager
async def server() -> AsyncGenerator[ApiFixture, None]:
    """A server with a store on a disk."""
    log = Logger("bench")
    with tempfile.TemporaryDirectory(prefix="grange-bench-") as directory:
        store = await SQLiteStore.open(Path(directory), log=log)
        async with opened(ApiFixture(LoopClock(), Stream(1), log, store=store)) as fixture:
            yield fixture
        await store.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the caches show."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  caches have no event for this
            await asyncio.sleep(0.1)  # looking at all jobs more often was 4 % of the processor time


async def quiet(fixture: ApiFixture) -> None:
    """Wait until nothing is written any more: events about pods go on for a while."""
    revision = -1
    while fixture.store.revision != revision:
        revision = fixture.store.revision
        await asyncio.sleep(_SETTLE_S)


async def many() -> dict[str, float]:
    """1,000 jobs of eight pods."""
    async with server() as fixture:
        bench = Bench(fixture)
        laps = Laps()
        await bench.submit(JOBS, PODS)
        await bench.until_all("Running", PODS)
        figures = laps.lap("jobs_running")
        bench.nodes.end_all()
        await bench.until_all("Succeeded")
        await until(lambda: not len(bench.nodes.pods.store))
        return figures | laps.lap("jobs_cleaned")


async def large() -> dict[str, float]:
    """One job of 5,000 pods."""
    async with server() as fixture:
        bench = Bench(fixture)
        laps = Laps()
        await bench.submit(1, LARGE)
        await bench.until_all("Running", LARGE)
        return laps.lap("jobs_large")


async def restart() -> dict[str, float]:
    """A pod of 15,000 fails, and all are replaced."""
    async with server() as fixture:
        bench = Bench(fixture)
        await bench.submit(1, HUGE)
        await bench.until_all("Running", HUGE)
        await quiet(fixture)
        old = {pod.metadata.uid for pod in bench.nodes.pods.store.list()}
        first = bench.nodes.pods.store.list()[0]
        laps = Laps()
        await bench.nodes.report(first, "Failed", 42)

        def replaced() -> bool:
            found = bench.nodes.pods.store.list()
            return len(found) == HUGE and not any(pod.metadata.uid in old for pod in found)

        await until(replaced)
        await bench.until_all("Running", HUGE)
        figures = laps.lap("jobs_restart")
        return {
            "jobs_restart_per_s": HUGE / figures["jobs_restart_s"],
            "jobs_restart_cpu_ms": 1000 * figures["jobs_restart_cpu_s"] / HUGE,
        }


async def at_rest() -> dict[str, float]:
    """10,000 jobs that are finished."""
    async with server() as fixture:
        bench = Bench(fixture)
        bench.nodes.ends = True
        await bench.submit(FINISHED, 1)
        await bench.until_all("Succeeded")
        await quiet(fixture)
        before = time.process_time()
        await asyncio.sleep(REST_S)
        return {"jobs_rest_percent": 100.0 * (time.process_time() - before) / REST_S}


async def measure() -> dict[str, float]:
    """The figures of this scenario."""
    parts: tuple[Callable[[], Awaitable[dict[str, float]]], ...] = (many, large, restart, at_rest)
    gc_tuning.tune()  # as a server does
    figures: dict[str, float] = {}
    for part in parts:
        figures |= await part()
    return figures


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure())))
