"""Test sessions: from submission to pods, to RUN, and what a hundred of them need at once.

``pods`` and ``at_once`` run in this process: the API server in memory, the controllers of leases and of
sessions, and nodes that bind and start pods at once. ``to_run`` is a real control plane whose pods
are processes of this machine.

Alone: ``python -m bench.sessionruns``.
"""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from grange.api.kinds import NODE, POD, TESTSESSION
from grange.api.kinds.machinelease import POOL_LABEL
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession
from grange.api.meta import Document, ObjectKey
from grange.api.status import Conflict, NotFound
from grange.app import gc_tuning
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.controllers.testsession.controller import SessionService
from grange.reconcile.informer import Informer
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, opened

POOLS, MACHINES = 10, 50
SESSIONS, AT_ONCE, RUNS = 200, 100, 5
WORKERS = 4
LIMIT_S = 120.0
_HANDS = 16


def session(name: str, pool: str, workers: int = WORKERS, **command: list[str]) -> Document:
    """A driver and workers that have a machine each."""
    driver = {"pool": pool, "command": command.get("driver", ["drive"])}
    server = {"pool": pool, "command": command.get("server", ["serve"]), "count": workers}
    spec: Document = {"driver": driver, "servers": [server]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Cluster:
    """A server, the controllers of sessions and leases, and nodes, in one process."""

    def __init__(self, fixture: ApiFixture) -> None:
        deps, mine = fixture.new_deps(), fixture.new_deps()
        self.client = fixture.client
        self.pods: Informer[Pod] = mine.informers.informer(POD)
        self.sessions: Informer[TestSession] = mine.informers.informer(TESTSESSION)
        self.ends = False
        self.created: dict[str, float] = {}
        self._seen: asyncio.Queue[Pod] = asyncio.Queue()
        self.pods.add_handler(self._added, lambda _, new: self._seen.put_nowait(new))
        for run in (deps.informers.run, mine.informers.run, self._act):
            fixture.nursery.start(run())
        fixture.start(MachineLeaseController(deps), SessionService(deps))

    async def add_machines(self) -> None:
        """Ready nodes in pools."""
        for pool in range(POOLS):
            for number in range(MACHINES):
                labels = {POOL_LABEL: f"p{pool}"}
                document = builders.node_document(f"p{pool}-{number}", labels=labels)
                await self.client.create(NODE, document)
        await asyncio.sleep(4.0)  # a pool that grows settles before a lease of it is refused
        gc_tuning.settle()

    def running(self) -> int:
        """How many sessions are at work."""
        return sum(1 for item in self.sessions.store.list() if item.status.phase == "Running")

    def has_created(self, names: list[str]) -> bool:
        """Whether these pods were created."""
        return all(name in self.created for name in names)

    def has_ended(self, name: str) -> bool:
        """Whether a session has passed."""
        found = self.sessions.store.get(ObjectKey("default", name))
        return found is not None and found.status.phase == "Succeeded"

    def _added(self, pod: Pod) -> None:
        self.created[pod.metadata.name] = time.perf_counter()
        self._seen.put_nowait(pod)

    async def _act(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_HANDS):
                group.create_task(self._hand())

    async def _hand(self) -> None:
        while True:
            pod = await self._seen.get()
            with suppress(NotFound, Conflict):
                await self._move(pod)

    async def _move(self, pod: Pod) -> None:
        meta, phase = pod.metadata, pod.status.phase
        if meta.deletion_timestamp:
            await self.client.delete(POD, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0)
        elif not pod.spec.node_name:
            target = {"apiVersion": "v1", "kind": "Node", "name": machine_of(pod)}
            await self.client.post(POD, meta.name, meta.namespace, "binding", {"target": target})
        elif phase in ("", "Pending"):
            await self._report(pod, "Running", {"running": {}}, podIP="10.0.0.1")
        elif phase == "Running" and self.ends and meta.name.endswith("-driver"):
            await self._report(pod, "Succeeded", {"terminated": {"exitCode": 0}})

    async def _report(self, pod: Pod, phase: str, state: Document, **more: str) -> None:
        container: Document = {"name": "main", "image": "", "imageID": "", "restartCount": 0}
        container |= {"ready": phase == "Running", "state": state}
        status: Document = {"phase": phase, "containerStatuses": [container], **more}
        meta = pod.metadata
        await self.client.patch(
            POD, meta.name, meta.namespace, patch={"status": status}, subresource="status"
        )


def machine_of(pod: Pod) -> str:
    """The machine that the session's controller chose for a pod."""
    affinity = pod.spec.affinity
    required = affinity.node_affinity if affinity is not None else None
    rules = required.required_during_scheduling_ignored_during_execution if required else None
    if rules is None:
        raise RuntimeError(f"pod {pod.metadata.name} has no machine")
    return rules.node_selector_terms[0].match_fields[0].values[0]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the caches show."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  caches have no event for this
            await asyncio.sleep(0.002)


def peak_mb() -> float:
    """The most memory that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


async def at_once() -> dict[str, float]:
    """A hundred sessions of five components run at the same time."""
    async with opened(ApiFixture(LoopClock(), Stream(1), Logger("bench"))) as fixture:
        cluster = Cluster(fixture)
        await cluster.add_machines()
        started = time.perf_counter()
        for number in range(AT_ONCE):
            document = session(f"s{number}", f"p{number % POOLS}")
            await cluster.client.create(TESTSESSION, document, "default")
        await until(lambda: cluster.running() == AT_ONCE)
        return {
            "sessions_running_s": time.perf_counter() - started,
            "sessions_memory_mb": peak_mb(),
        }


async def pods() -> dict[str, float]:
    """One session after the other on free machines, until its workers' pods are there."""
    async with opened(ApiFixture(LoopClock(), Stream(1), Logger("bench"))) as fixture:
        cluster = Cluster(fixture)
        cluster.ends = True
        await cluster.add_machines()
        wall: list[float] = []
        cpu: list[float] = []
        for number in range(SESSIONS):
            name = f"s{number}"
            names = [f"{name}-server-{index}" for index in range(WORKERS)]
            started, used = time.perf_counter(), time.process_time()
            document = session(name, f"p{number % POOLS}")
            await cluster.client.create(TESTSESSION, document, "default")
            await until(partial(cluster.has_created, names))
            cpu.append((time.process_time() - used) * 1e3)
            wall.append((max(cluster.created[one] for one in names) - started) * 1e3)
            await until(partial(cluster.has_ended, name))
        at = int(SESSIONS * 0.99)
        return {
            "sessions_pods_ms": sorted(wall)[SESSIONS // 2],
            "sessions_pods_p99_ms": sorted(wall)[at],
            "sessions_pods_cpu_p99_ms": sorted(cpu)[at],
        }


def to_run() -> dict[str, float]:
    """From submission to RUN of a driver and three workers that are processes."""
    from grange.testing import cluster

    sleeps = ["sleep", "300"]
    times = []
    with cluster(pools={"drivers": 1, "workers": 3}) as running:
        for number in range(RUNS):
            name = f"s{number}"
            document = session(name, "workers", 3, driver=sleeps, server=sleeps)
            document["spec"]["driver"]["pool"] = "drivers"
            document |= {"apiVersion": "grange.dev/v1alpha1", "kind": "TestSession"}
            started = time.perf_counter()
            running.create([document])
            get = partial(running.get, "testsession", name)
            until_phase(get, "Running")
            times.append(time.perf_counter() - started)
            running.patch("testsession", name, {"spec": {"cancel": "Now"}})
            until_phase(get, "Cancelled")
    return {"sessions_to_run_s": sorted(times)[RUNS // 2], "sessions_to_run_max_s": max(times)}


def until_phase(get: Callable[[], Document], phase: str) -> None:
    """Poll a session every 5 ms.

    Raises:
        TimeoutError: it does not come to the phase.
    """
    deadline = time.perf_counter() + LIMIT_S
    while (status := get().get("status") or {}).get("phase") != phase:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not {phase}: {status}")
        time.sleep(0.005)


def measure() -> dict[str, float]:
    """The figures of this scenario; memory first, while the process is new."""
    gc_tuning.tune()  # as every process of Grange does
    return {**asyncio.run(at_once()), **asyncio.run(pods()), **to_run()}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
