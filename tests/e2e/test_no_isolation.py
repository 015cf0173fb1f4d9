"""What the program of a pod can see and do with ``--isolation none``, line by line of the table in
docs/reference/agent.md: it warns of what is tried here.
"""

import json
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from grange.agent.container_runtime import (
    ContainerID,
    LogQuery,
    Mount,
    PodSetup,
    Program,
    VolumeFile,
    VolumePlan,
)
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads

pytestmark = pytest.mark.e2e
UID = "8a1c2f0e-0000-4000-8000-000000000001"
SETUP = PodSetup(
    UID,
    "default",
    "web",
    "node-1",
    (VolumePlan("config", (VolumeFile("app.conf", b"color: red\n", 0o644),)),),
)
MOUNTS = (Mount("config", "/etc/app", read_only=True),)
ATTEMPTS = """
import json, os, socket, sys
facts = json.loads(sys.argv[1])
root = os.environ["GRANGE_ROOT"]
def can(action):
    try:
        result = action()
    except OSError as error:
        return type(error).__name__
    return True if result is None else result
def read(path):
    with open(path) as file:
        return file.read()
def write(path):
    with open(path, "w") as file:
        file.write("x")
print(json.dumps({
    "secret": can(lambda: read(facts["secret"])),
    "other pod": can(lambda: read(facts["other"])),
    "environment of the server": can(lambda: "PATH=" in read(f"/proc/{facts['server']}/environ")),
    "server": can(lambda: os.kill(facts["server"], 0)),
    "processes": facts["server"] in [int(name) for name in os.listdir("/proc") if name.isdigit()],
    "host name": socket.gethostname(),
    "hosts": can(lambda: read("/etc/hosts")),
    "config at its path": can(lambda: read("/etc/app/app.conf")),
    "config below the root": can(lambda: read(root + "/etc/app/app.conf")),
    "config written": can(lambda: write(root + "/etc/app/app.conf")),
    "the machine's /tmp": can(lambda: os.stat("/tmp").st_ino == facts["tmp"]),
    "account": os.path.exists("/var/run/secrets/kubernetes.io"),
    "user's file": can(lambda: len(read(facts["users"])) > 0),
    "loopback": can(lambda: socket.create_connection(facts["listener"], 5).close()),
    "who": [os.getuid(), os.getgid()],
}))
"""


@pytest.fixture
async def shared(tmp_path: Path, clock: Clock, log: Logger) -> AsyncGenerator[ProcessRuntime, None]:
    config = ProcessConfig(tmp_path / "data", isolation="none")
    with closing(Threads("runtime", 2)) as offload:
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as made:
            assert made.isolation == "none"
            yield made
            for record in made.pods():
                await made.remove(record.sandbox.uid)


async def test_program_can_do_what_its_user_can(shared: ProcessRuntime, tmp_path: Path) -> None:
    other = PodSetup("uid-2", "default", "other", "node-1", (VolumePlan("data"),))
    file = Path((await shared.prepare(other)).volumes["data"], "file")
    sandbox = await shared.prepare(SETUP)
    for path in (tmp_path / "data" / "admin.key", file):
        path.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        facts = {
            "secret": str(tmp_path / "data" / "admin.key"),
            "other": str(file),
            "server": os.getpid(),
            "tmp": os.stat("/tmp").st_ino,  # noqa: S108  looked at only
            "users": __file__,
            "listener": listener.getsockname(),
        }
        target = ContainerID(UID, "main", 0)
        command = (sys.executable, "-c", ATTEMPTS, json.dumps(facts))
        env = {"PATH": os.environ["PATH"], "GRANGE_ROOT": sandbox.root("main")}
        await shared.start(target, Program(command, env), MOUNTS)
        pieces = [piece async for piece in shared.logs.read(target, LogQuery(follow=True))]
    assert json.loads(b"".join(pieces)) == {
        "secret": "secret",
        "other pod": "secret",
        "environment of the server": True,
        "server": True,
        "processes": True,
        "host name": socket.gethostname(),
        "hosts": Path("/etc/hosts").read_text(),  # noqa: ASYNC240  tiny
        "config at its path": "FileNotFoundError",
        "config below the root": "color: red\n",
        "config written": True,
        "the machine's /tmp": True,
        "account": False,
        "user's file": True,
        "loopback": True,
        "who": [os.getuid(), os.getgid()],
    }
