"""What the program of a pod can reach with ``--isolation landlock``, line by line of the table in
docs/reference/agent.md. Where the kernel has no Landlock, that asking for it is refused.
"""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S
from tests.e2e.test_process_runtime import end_of

from grange.agent.container_runtime import (
    ContainerID,
    LogQuery,
    Mount,
    PodSetup,
    Program,
    RuntimeFailedError,
    VolumePlan,
)
from grange.agent.runtimes.process import landlock
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads

pytestmark = pytest.mark.e2e
UID = "8a1c2f0e-0000-4000-8000-000000000001"
SETUP = PodSetup(UID, "default", "web", "node-1", (VolumePlan("data"),), shared=True)
TARGET = ContainerID(UID, "main", 0)
UNPRIVILEGED = (65534, 65534)
USERS = [None, UNPRIVILEGED] if os.geteuid() == 0 else [None]
ATTEMPTS = """
import json, os, socket, subprocess, sys
facts = json.loads(sys.argv[1])
server = facts["server"]
def can(action):
    try:
        result = action()
    except OSError as error:
        return type(error).__name__
    return True if result is None else result
def read(path):
    with open(path, "rb") as file:
        return len(file.read()) >= 0
def write(path):
    with open(path, "w") as file:
        file.write("x")
print(json.dumps({
    "secret": can(lambda: read(facts["secret"])),
    "secret emptied": can(lambda: os.truncate(facts["secret"], 0)),
    "secret written": can(lambda: write(facts["secret"])),
    "secret deleted": can(lambda: os.unlink(facts["secret"])),
    "secret moved": can(lambda: os.rename(facts["secret"], "moved")),
    "by the server's root": can(lambda: read(f"/proc/{server}/root" + facts["secret"])),
    "environment of the server": can(lambda: read(f"/proc/{server}/environ")),
    "data directory": can(lambda: len(os.listdir(facts["data"]))),
    "other pod": can(lambda: read(facts["other"])),
    "hidden file": can(lambda: read(facts["hidden"])),
    "signal": can(lambda: os.kill(server, 0)),
    "by a child": subprocess.run(["cat", facts["secret"]], capture_output=True).returncode != 0,
    "own file": can(lambda: write("own")),
    "own volume": can(lambda: write("data/file")),
    "temporary": can(lambda: write(os.environ["TMPDIR"] + "/file")),
    "program of the machine": can(lambda: read("/usr/bin/env")),
    "directory of the machine": can(lambda: len(os.listdir("/usr/bin")) > 0),
    "device": can(lambda: write("/dev/null")),
    "loopback": can(lambda: socket.create_server(("127.0.0.1", 0)).close()),
}))
"""
DENIED = "PermissionError"


@pytest.fixture
async def restricted(
    tmp_path: Path, clock: Clock, log: Logger
) -> AsyncGenerator[ProcessRuntime, None]:
    config = ProcessConfig(
        tmp_path / "data", isolation="landlock", hidden=(tmp_path / "kubeconfig",)
    )
    for place in (tmp_path, *tmp_path.parents):  # pytest makes them for its user alone
        if place.stat().st_uid == os.geteuid() and place.name.startswith(("pytest-", "test_")):
            place.chmod(0o755)
    (tmp_path / "data").mkdir(mode=0o711)
    with closing(Threads("runtime", 2)) as offload:
        made = ProcessRuntime(config, clock=clock, log=log, offload=offload)
        if landlock.version() < 3:
            with pytest.raises(RuntimeFailedError, match="it needs Linux"):
                await made.__aenter__()
            pytest.xfail("the kernel has no Landlock here; asking for it is refused")
        async with made:
            assert made.isolation == "landlock"
            await made.prepare(SETUP)
            yield made
            for record in made.pods():
                await made.remove(record.sandbox.uid)


@pytest.mark.parametrize("user", USERS, ids=str)
async def test_program_reaches_what_is_its_own(
    restricted: ProcessRuntime, tmp_path: Path, user: tuple[int, int] | None
) -> None:
    data = tmp_path / "data"
    other = data / "pods" / "another" / "tmp" / "file"
    other.parent.mkdir(parents=True)
    for path in (data / "secret", other, tmp_path / "kubeconfig"):
        path.write_text("secret")
        path.chmod(0o666)
    facts = {
        "secret": str(data / "secret"),
        "data": str(data),
        "other": str(other),
        "hidden": str(tmp_path / "kubeconfig"),
        "server": os.getpid(),
    }
    [record] = restricted.pods()
    env = {"PATH": os.environ["PATH"], "TMPDIR": record.sandbox.tmp}
    command = ("/usr/bin/python3", "-c", ATTEMPTS, json.dumps(facts))
    await restricted.start(TARGET, Program(command, env, user=user), (Mount("data", "/data"),))
    pieces = [piece async for piece in restricted.logs.read(TARGET, LogQuery(follow=True))]
    found = json.loads(b"".join(pieces))
    signals = DENIED if landlock.version() >= 6 or user else True
    assert found.pop("signal") == signals
    reached = {name: result for name, result in found.items() if not isinstance(result, str)}
    if os.geteuid() == 0 and user is None:  # CAP_PERFMON reads it, Landlock or not
        reached.pop("environment of the server", None)
    assert reached == {
        "by a child": True,
        "own file": True,
        "own volume": True,
        "temporary": True,
        "program of the machine": True,
        "directory of the machine": True,
        "device": True,
        "loopback": True,
    }
    assert (data / "secret").read_text() == "secret"


async def test_command_reaches_no_more_than_its_container(
    restricted: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    secret = tmp_path / "data" / "secret"
    secret.write_text("secret")
    script = f"cat {secret} || kill -USR1 $1"
    await restricted.start(
        TARGET,
        Program(("sh", "-c", "trap 'exit 3' USR1; while :; do sleep 0.05; done"), dict(os.environ)),
        (),
    )
    [record] = restricted.pods()
    pid = str(record.runs[0].pid)
    result = await restricted.run(TARGET, ("sh", "-c", script, "sh", pid), LIMIT_S)
    assert result.exit_code == 0
    assert "Permission denied" in result.output
    ended = await end_of(restricted, TARGET, clock)
    assert ended.exit_code == 3


def test_everything_but_the_hidden_is_reachable(tmp_path: Path) -> None:
    top = Path(os.path.realpath(tmp_path))
    for name in ("a/data/pods/x", "a/data/pods/y", "a/b", "c"):
        (top / name).mkdir(parents=True)
    (top / "a" / "link").symlink_to(top)
    found = landlock.reachable(
        str(top), [f"{top}/a/data", f"{top}/absent"], [f"{top}/a/data/pods/x"]
    )
    places = [Path(path).relative_to(top) for path in found]
    assert [str(path) for path in places] == ["a/b", "a/data/pods/x", "a/link", "c"]
