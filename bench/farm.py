"""Many controllers shared by three processes on one API: start, rest, a change, a death.

Alone: ``python -m bench.farm``; ``GRANGE_BENCH_FARM=1000`` makes it smaller.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.startup import cpu_s, free_port, grange
from grange.api.farm_protocol import GROUP_LABEL, OWNER_ANNOTATION
from grange.api.kinds import LEASE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.lease import Lease
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, controller_of
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client import kubeconfig
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP
from grange.reconcile.farm.leases import token_of
from grange.reconcile.informer import Informer, InformerFactory

CONTROLLERS = int(os.environ.get("GRANGE_BENCH_FARM", "10000"))
MEMBERS = ("one", "two", "three")
CHANGES = 100
REST_S = 15.0
LIMIT_S = 180.0
TEMPLATE: Document = {"spec": {"containers": [{"name": "main", "command": ["sleep", "1000"]}]}}


def controller(number: int) -> Document:
    return {
        "metadata": {"name": f"rc-{number:05d}", "namespace": "default"},
        "spec": {"replicas": 0, "placement": "Packed", "template": TEMPLATE},
    }


class Watcher:
    """What the API shows: who owns what, what was reconciled, and which pods are there."""

    def __init__(self, informers: InformerFactory) -> None:
        self.controllers: Informer[ReplicationController] = informers.informer(
            REPLICATIONCONTROLLER
        )
        self.leases: Informer[Lease] = informers.informer(LEASE, labels=GROUP_LABEL)
        self.pods: Informer[Pod] = informers.informer(POD)
        self.renewals = 0
        self.seen: dict[str, float] = {}  # when the first pod of a controller was there
        self.leases.add_handler(on_update=lambda _, new: self._renewed())
        self.pods.add_handler(self._made)

    def _renewed(self) -> None:
        self.renewals += 1

    def _made(self, pod: Pod) -> None:
        owner = controller_of(pod.metadata)
        if owner is not None:
            self.seen.setdefault(owner.name, time.perf_counter())

    def owned(self) -> int:
        """Controllers that name a session which goes on."""
        live = {str(token) for lease in self.leases.store if (token := token_of(lease))}
        return sum(
            item.metadata.annotations.get(OWNER_ANNOTATION) in live
            for item in self.controllers.store
        )

    def reconciled(self) -> int:
        return sum(item.status.observed_generation > 0 for item in self.controllers.store)


async def until(holds: Callable[[], bool], every_s: float = 0.2) -> None:
    deadline = time.perf_counter() + LIMIT_S
    while not holds():
        if time.perf_counter() > deadline:
            raise TimeoutError("not within the limit")
        await asyncio.sleep(every_s)


async def create(client: Client) -> None:
    numbers = iter(range(CONTROLLERS))

    async def work() -> None:
        for number in numbers:
            await client.create(REPLICATIONCONTROLLER, controller(number), "default")

    async with Nursery("create") as nursery:
        for _ in range(16):
            nursery.start(work())


def start_member(name: str, config: Path, log: Path) -> "subprocess.Popen[bytes]":
    words = ("controllers", "--kubeconfig", str(config), "--member", name, "--only", "replication")
    with log.open("ab") as output:
        return subprocess.Popen(grange(*words), stdout=output, stderr=output)


async def changes(client: Client, watcher: Watcher) -> tuple[float, float]:
    """Median and p99 of scaling a controller up to its pod being there, in seconds."""
    taken = []
    for number in range(CHANGES):
        name = f"rc-{number * (CONTROLLERS // CHANGES):05d}"
        began = time.perf_counter()
        patch: Document = {"spec": {"replicas": 1}}
        await client.patch(REPLICATIONCONTROLLER, name, "default", patch=patch)
        await until(lambda name=name: name in watcher.seen, 0.001)  # type: ignore[misc]  # bound now
        taken.append(watcher.seen[name] - began)
        await asyncio.sleep(0.02)
    taken.sort()
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99) - 1]


async def measured(
    client: Client, config: Path, log: Path, members: dict[str, "subprocess.Popen[bytes]"]
) -> dict[str, float]:
    await create(client)
    clock = LoopClock()
    informers = InformerFactory(client, clock=clock, rng=Stream(0), log=Logger("bench"))
    watcher = Watcher(informers)
    async with Nursery("bench") as nursery:
        nursery.start(informers.run())
        await informers.wait_synced()
        began = time.perf_counter()
        for name in MEMBERS:
            members[name] = start_member(name, config, log)
        await until(
            lambda: watcher.owned() == CONTROLLERS and watcher.reconciled() == CONTROLLERS, 0.5
        )
        result = {"farm_claimed_s": time.perf_counter() - began}
        await asyncio.sleep(5.0)
        before = {name: cpu_s(process.pid) for name, process in members.items()}
        renewals, at = watcher.renewals, time.perf_counter()
        await asyncio.sleep(REST_S)
        took = time.perf_counter() - at
        busy = max(cpu_s(process.pid) - before[name] for name, process in members.items())
        result["farm_rest_percent"] = 100 * busy / took
        result["farm_lease_writes_per_s"] = (watcher.renewals - renewals) / took / len(MEMBERS)
        median, late = await changes(client, watcher)
        result["farm_change_ms"], result["farm_change_p99_ms"] = 1000 * median, 1000 * late
        began = time.perf_counter()
        members["two"].kill()
        await until(lambda: watcher.owned() < CONTROLLERS, 0.1)
        await until(lambda: watcher.owned() == CONTROLLERS, 0.2)
        result["farm_taken_over_s"] = time.perf_counter() - began
        nursery.cancel()
    return result


async def connected(
    config: Path, log: Path, members: dict[str, "subprocess.Popen[bytes]"]
) -> dict[str, float]:
    transport = HTTP.from_access(kubeconfig.load([config]))
    try:
        return await measured(Client(transport), config, log, members)
    finally:
        await transport.close()


def measure() -> dict[str, float]:
    """One run."""
    directory = Path(tempfile.mkdtemp(prefix="grange-bench-"))
    config, log = directory / "kubeconfig", directory / "members.log"
    words = ("up", "--data-dir", str(directory), "--listen", f"127.0.0.1:{free_port()}")
    server = subprocess.Popen(
        grange(*words, "--no-switch", "--disable", "controllers,scheduler,agent"),
        stdout=subprocess.PIPE,
    )
    members: dict[str, subprocess.Popen[bytes]] = {}
    try:
        if server.stdout is None or not server.stdout.readline():
            raise RuntimeError("the server did not start")
        return asyncio.run(connected(config, log, members))
    finally:
        for process in (*members.values(), server):
            process.terminate()
        for process in (*members.values(), server):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
