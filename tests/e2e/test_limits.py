"""ContainerLimits of containers, as the kernel enforces them; or the node reports that it does not."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S
from tests.e2e.test_process_runtime import end_of, run_of

from grange.agent.container_runtime import (
    ContainerID,
    ContainerLimits,
    Mount,
    PodSetup,
    Program,
    RuntimeFailedError,
    VolumePlan,
)
from grange.agent.runtimes.process import cgroups
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads

pytestmark = pytest.mark.e2e
MIB = 1024 * 1024
UID = "8a1c2f0e-0000-4000-8000-000000000001"
PYTHON = VolumePlan("python", host_path=sys.prefix)
SETUP = PodSetup(UID, "default", "web", "node-1", (PYTHON,))
TARGET = ContainerID(UID, "main", 0)
GREEDY = "print('up', flush=True); kept = b'x' * (200 << 20); import time; time.sleep(60)"
BUSY = "while True: pass"


@pytest.fixture(params=["none", "auto"])
async def runtime(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, log: Logger
) -> AsyncGenerator[ProcessRuntime, None]:
    config = ProcessConfig(tmp_path, isolation=request.param)
    with closing(Threads("runtime", 2)) as offload:
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as made:
            if made.limits == "none":
                pytest.xfail("no control groups here; the Node and the pod's condition show it")
            await made.prepare(SETUP)
            yield made
            for record in made.pods():
                await made.remove(record.sandbox.uid)
            groups = cgroups.of_data_dir(tmp_path)
            assert groups is not None
            assert left(groups) == []
        assert left(groups, above=True) == []


def left(groups: cgroups.ControlGroups, *, above: bool = False) -> list[str]:
    """The groups of the container that are there; or those that hold the groups of all."""
    paths = (Path(path) for path in groups.directories(TARGET))
    return [str(path) for path in paths if (path.parent if above else path).exists()]


async def start(runtime: ProcessRuntime, script: str, limits: ContainerLimits) -> None:
    env = {"PATH": os.environ["PATH"]}
    program = Program((sys.executable, "-c", script), env, limits=limits)
    await runtime.start(TARGET, program, (Mount("python", sys.prefix),))


async def test_memory_beyond_the_limit_ends_the_program(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    await start(runtime, GREEDY, ContainerLimits(memory_bytes=64 * MIB))
    run = await end_of(runtime, TARGET, clock)
    assert (run.exit_code, run.reason) == (137, "OOMKilled")


async def test_cpu_is_held_to_its_limit(runtime: ProcessRuntime, clock: Clock) -> None:
    await start(runtime, BUSY, ContainerLimits(cpu_milli=200))
    await clock.sleep(0.5)
    begun, before = clock.monotonic(), (await runtime.usage())[0].cpu_s
    await clock.sleep(1.5)
    used = (await runtime.usage())[0].cpu_s - before
    assert used < 0.1 + 0.3 * (clock.monotonic() - begun)  # its share is 0.2


async def test_command_counts_against_the_limit(runtime: ProcessRuntime) -> None:
    await start(runtime, "import time; time.sleep(600)", ContainerLimits(memory_bytes=64 * MIB))
    done = await runtime.run(TARGET, (sys.executable, "-c", GREEDY), LIMIT_S)
    assert done.exit_code == 137
    assert run_of(runtime, TARGET).running


async def test_groups_of_a_lost_shim_are_removed(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    """With what is in them: a program that cleared its environment, too."""
    script = "import os, time; os.fork(); os.execve('/bin/sleep', ['sleep', '600'], {})"
    await start(runtime, script, ContainerLimits(cpu_milli=1000))
    await clock.sleep(0.5)
    groups = cgroups.of_data_dir(tmp_path)
    assert groups is not None
    shim = next(attempt.shim[0] for pod in runtime._pods.values() for attempt in pod.all_attempts())
    os.kill(shim, 9)
    assert (await end_of(runtime, TARGET, clock)).reason == "ContainerStatusUnknown"
    assert left(groups) == []


async def test_limits_change_while_the_program_runs(
    runtime: ProcessRuntime, clock: Clock, tmp_path: Path
) -> None:
    script = "kept = b'x' * (48 << 20); print('up', flush=True); import time; time.sleep(600)"
    await start(runtime, script, ContainerLimits(1000, 96 * MIB))
    async with clock.timeout(60):
        while (await runtime.usage())[0].memory_bytes < 48 * MIB:
            await clock.sleep(0.05)
    for wanted in (ContainerLimits(250, 512 * MIB), ContainerLimits(1500, 80 * MIB)):
        await runtime.resize(TARGET, wanted, 100)
        assert in_force(tmp_path) == wanted
    with pytest.raises(RuntimeFailedError, match="memory limit cannot be 16777216"):
        await runtime.resize(TARGET, ContainerLimits(1500, 16 * MIB), 100)
    assert in_force(tmp_path) == ContainerLimits(1500, 80 * MIB)
    assert run_of(runtime, TARGET).running


async def test_limits_come_at_the_next_start_where_there_were_none(runtime: ProcessRuntime) -> None:
    await start(runtime, "import time; time.sleep(600)", ContainerLimits())
    await runtime.resize(TARGET, ContainerLimits(), 100)
    with pytest.raises(RuntimeFailedError, match="from its next start"):
        await runtime.resize(TARGET, ContainerLimits(cpu_milli=500), 100)


def in_force(data_dir: Path) -> ContainerLimits:
    groups = cgroups.of_data_dir(data_dir)
    assert groups is not None
    files = {}
    for directory in groups.directories(TARGET):
        for name in ("cpu.max", "cpu.cfs_quota_us", "memory.max", "memory.limit_in_bytes"):
            if (path := Path(directory, name)).exists():
                files[name.partition(".")[0]] = int(path.read_text().split()[0])
    return ContainerLimits(files["cpu"] // 100, files["memory"])
