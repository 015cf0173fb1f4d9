"""From a waiting pod to its machine: claims of standby, and machines that are made for a pod.

Claims: API server, controller and a simulated provider in one process, over 50 machines that stand by; from the
answer to the create of a pod to the event that shows it bound. Machines: ``grange up`` on this computer with the
provider ``local``, from the create of the pod to its phase Running. Alone: ``python -m bench.machine_claims``.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.agents import Api
from bench.startup import free_port, grange, until_ready
from grange.api.kinds import MACHINE, NODEPOOL, POD
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.nodepool import DEDICATED
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.node_controller import NodeController, NodeControllerTools
from grange.machines.providers import ProviderTools
from grange.machines.providers.provider import Provider
from grange.machines.providers.simulated.cloud import CloudLatencies, SimulatedCloud
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, opened

STANDBY, CLAIMS = 50, 200
_LIMIT_S = 120.0

_POOLS = "/apis/grange.dev/v1alpha1/nodepools"
_PODS = "/api/v1/namespaces/default/pods"
POOL: dict[str, Any] = {
    "apiVersion": "grange.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "batch"},
    "spec": {"provider": "local", "mode": DEDICATED, "timeouts": {"idleSeconds": 1}},
}
WAITING: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {
        "nodeSelector": {NODE_POOL_LABEL: "batch"},
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "command": ["sleep", "1000"],
                "resources": {"requests": {"cpu": "500m"}},
            }
        ],
    },
}


async def claims() -> list[float]:
    """Milliseconds of each claim, sorted."""
    clock, rng, log = LoopClock(), Stream(1), Logger("bench")
    async with opened(ApiFixture(clock, rng, log)) as world:
        cloud = SimulatedCloud(clock, latencies=CloudLatencies(call=0.0, boot=0.0))

        def create(name: str, config: Mapping[str, Any], tools: ProviderTools) -> Provider:
            return SimulatedProvider(cloud, tools.cluster)

        deps = world.new_deps()
        world.nursery.start(deps.informers.run())
        world.start(NodeController(deps, NodeControllerTools(create=create)))
        standby = [{"instanceType": "small", "count": STANDBY}]
        spec = {"provider": "simulated", "mode": DEDICATED, "standby": standby}
        pool = {"maxBootPerIteration": STANDBY, **spec}
        version = (await world.client.list(MACHINE)).resource_version
        await world.client.create(NODEPOOL, {"metadata": {"name": "p"}, "spec": pool})
        world.nursery.start(_join(world, version))
        bound: dict[str, float] = {}
        changed = asyncio.Event()
        world.nursery.start(_watch(world, bound, changed))
        took = []
        for number in range(CLAIMS):
            await world.until(lambda: _enough(world))
            name = f"p{number}"
            document = builders.pod_document(
                name, requests={"cpu": "1"}, nodeSelector={NODE_POOL_LABEL: "p"}
            )
            began = time.perf_counter()
            await world.client.create(POD, document, "default")
            while name not in bound:
                changed.clear()
                await changed.wait()
            took.append((bound[name] - began) * 1e3)
            await asyncio.sleep(0.02)
        return sorted(took)


async def _enough(world: ApiFixture) -> bool:
    found = (await world.client.list(MACHINE)).items
    return sum(machine.status.phase == "Available" for machine in found) >= STANDBY // 2


async def _join(world: ApiFixture, version: str) -> None:
    """Nodes of machines are ready at once.

    By a watch: lists of hundreds of machines would hold up the claims that are measured.
    """
    joined: set[str] = set()
    async for event in world.client.watch(MACHINE, resource_version=version):
        machine = event.object
        if machine.status.phase != "Created":
            continue
        name = machine.metadata.name
        if name not in joined:
            joined.add(name)
            await builders.create_node(world.client, name)


async def _watch(world: ApiFixture, bound: dict[str, float], changed: asyncio.Event) -> None:
    version = (await world.client.list(POD)).resource_version
    async for event in world.client.watch(POD, resource_version=version):
        pod = event.object
        if pod.spec.node_name:
            bound.setdefault(pod.metadata.name, time.perf_counter())
            changed.set()


def running() -> tuple[float, float]:
    """Seconds from a pod's creation to Running on a machine that is made for it.

    And the processor time of all that takes part: control plane, machine and their helpers.
    """
    home = Path(tempfile.mkdtemp(prefix="grange-bench-"))
    data, url = home / "data", f"https://127.0.0.1:{free_port()}"
    words = ["--data-dir", str(data), "--listen", url.removeprefix("https://"), "--no-switch"]
    plane = subprocess.Popen(grange("up", *words), stdout=subprocess.DEVNULL)
    try:
        until_ready(url)
        while not (data / "kubeconfig").exists():
            time.sleep(0.01)
        api = Api(url, data)
        api.ask(_POOLS, POOL)
        api.until_condition(f"{_POOLS}/batch")  # its provider is known
        time.sleep(2.0)
        before = _processor_s(str(home))
        began = time.perf_counter()
        api.ask(_PODS, WAITING)
        deadline = began + _LIMIT_S
        while api.ask(f"{_PODS}/one")["status"]["phase"] != "Running":
            if time.perf_counter() > deadline:
                raise TimeoutError(f"the pod does not run after {_LIMIT_S:g} s")
            time.sleep(0.02)
        took_s, used_s = time.perf_counter() - began, _processor_s(str(home)) - before
        api.ask(f"{_PODS}/one", method="DELETE")
        api.ask(f"{_POOLS}/batch", method="DELETE")
        with contextlib.suppress(LookupError):
            while time.perf_counter() < deadline:
                api.ask(f"{_POOLS}/batch")
                time.sleep(0.5)
        return took_s, used_s
    finally:
        plane.terminate()
        plane.wait(_LIMIT_S)
        shutil.rmtree(home, ignore_errors=True)


def _processor_s(word: str) -> float:
    """Processor time of the processes whose command has a word, of their children, and of those that ended."""
    ticks, parents, found = {}, {}, set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_text()
        except OSError:
            continue  # it has ended
        pid = int(path.name)
        ticks[pid], parents[pid] = sum(map(int, fields[11:15])), int(fields[1])
        if word in command:
            found.add(pid)
    found |= {pid for pid, parent in parents.items() if parent in found}
    return sum(ticks[pid] for pid in found) / os.sysconf("SC_CLK_TCK")


def measure() -> dict[str, float]:
    """Claims in milliseconds, and seconds to a running pod."""
    took = asyncio.run(claims())
    running_s, running_cpu_s = running()
    return {
        "claim_p50_ms": took[len(took) // 2],
        "claim_p99_ms": took[len(took) * 99 // 100],
        "machine_running_s": running_s,
        "machine_running_cpu_s": running_cpu_s,
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
