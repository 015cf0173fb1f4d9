"""What a program's security context takes from it, as the kernel shows it."""

import os
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S

from grange.agent.container_runtime import (
    Confinement,
    ContainerID,
    LogQuery,
    Mount,
    PodSetup,
    Program,
    VolumePlan,
)
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads

pytestmark = pytest.mark.e2e
SETUP = PodSetup("uid-1", "default", "web", "node-1", (VolumePlan("data"), VolumePlan("fixed")))
MOUNTS = (Mount("data", "/srv/grange-data"), Mount("fixed", "/srv/grange-fixed", read_only=True))
NET_BIND = 1 << 10
ENV = {"PATH": os.environ["PATH"]}
needs_root = pytest.mark.xfail(os.geteuid() != 0, reason="the agent needs root", strict=True)


@pytest.fixture(params=["none", "auto"])
async def runtime(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, log: Logger
) -> AsyncGenerator[ProcessRuntime, None]:
    config = ProcessConfig(tmp_path, isolation=request.param)
    with closing(Threads("runtime", 2)) as offload:
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as made:
            await made.prepare(SETUP)
            yield made
            for record in made.pods():
                await made.remove(record.sandbox.uid)


async def output(
    runtime: ProcessRuntime,
    script: str,
    confinement: Confinement,
    user: tuple[int, int] | None = None,
) -> str:
    """What a confined script wrote."""
    target = ContainerID(SETUP.uid, "main", 0)
    program = Program(
        ("sh", "-c", script),
        ENV,
        user=user,
        confinement=confinement,
        message_path="/dev/log-x",
    )
    await runtime.start(target, program, MOUNTS)
    pieces = [piece async for piece in runtime.logs.read(target, LogQuery(follow=True))]
    return b"".join(pieces).decode()


async def test_program_gains_no_privileges(runtime: ProcessRuntime) -> None:
    script = "grep NoNewPrivs /proc/self/status"
    assert (await output(runtime, script, Confinement(no_new_privileges=True))).split()[1] == "1"


@needs_root
@pytest.mark.parametrize("mask", [0, NET_BIND])
async def test_program_has_these_capabilities(runtime: ProcessRuntime, mask: int) -> None:
    script = "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status"
    lines = (await output(runtime, script, Confinement(capabilities=mask))).splitlines()
    found = {name.rstrip(":"): int(value, 16) for name, value in map(str.split, lines)}
    assert found == {"CapInh": 0, "CapPrm": mask, "CapEff": mask, "CapBnd": mask, "CapAmb": 0}


@needs_root
async def test_program_has_these_groups(runtime: ProcessRuntime) -> None:
    await runtime.prepare(replace(SETUP, shared=True))
    found = await output(runtime, "id -G", Confinement(groups=(7, 8)), (65534, 65533))
    assert sorted(found.split()) == ["65533", "7", "8"]


@needs_root
async def test_command_has_the_rights_of_its_container(runtime: ProcessRuntime) -> None:
    target = ContainerID(SETUP.uid, "main", 0)
    program = Program(("sleep", "600"), ENV, confinement=Confinement(capabilities=0))
    await runtime.start(target, program, MOUNTS)
    done = await runtime.run(target, ("grep", "CapEff", "/proc/self/status"), LIMIT_S)
    assert int(done.output.split()[1], 16) == 0


WRITES = """
for place in /srv/grange-fixed /srv/grange-data /tmp /dev/shm /etc /usr "$PWD" /; do
  if echo x 2>/dev/null > "$place/grange-written"; then rm "$place/grange-written"; echo "$place"; fi
done
echo x > /dev/null && echo null
echo left > /dev/log-x
"""


async def test_read_only_root_leaves_volumes_writable(runtime: ProcessRuntime) -> None:
    if runtime.isolation != "namespaces":
        pytest.xfail("needs namespaces; the field is reported as unsupported on this node")
    found = await output(runtime, WRITES, Confinement(read_only_root=True))
    assert found.splitlines() == ["/srv/grange-data", "/tmp", "/dev/shm", "null"]  # noqa: S108  of the pod
    target = ContainerID(SETUP.uid, "main", 0)
    assert await runtime.read_message(target, "/dev/log-x", 100) == b"left\n"


async def test_volume_by_a_link_in_another_is_not_mounted(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    """A program can put links into its volume, and a second container may name them as a subPath."""
    volumes = runtime.pods()[0].sandbox.volumes
    Path(volumes["data"], "out").symlink_to(tmp_path)  # noqa: ASYNC240  tiny
    target = ContainerID(SETUP.uid, "main", 0)
    program = Program(("ls", "/srv/inside"), ENV)
    with pytest.raises(Exception, match="cannot make"):
        await runtime.start(target, program, (Mount("data", "/srv/inside", sub_path="out"),))
