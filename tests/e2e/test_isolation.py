"""What the program of a pod can see and do with ``--isolation namespaces``, line by line of the table in
docs/reference/agent.md. Where the kernel allows no namespaces, that asking for them is refused.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S, Plane, eventually, processes_with
from tests.e2e.test_process_runtime import end_of, run_of
from tests.support.marked_processes import marked

from grange.agent.container_runtime import (
    ContainerID,
    LogQuery,
    Mount,
    PodSetup,
    Program,
    RuntimeFailedError,
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
    (
        VolumePlan("config", (VolumeFile("app.conf", b"color: red\n", 0o644),)),
        VolumePlan("data"),
        VolumePlan("python", host_path=sys.prefix),
        VolumePlan("tests", host_path=str(Path(__file__).parent)),
    ),
)
# The environment and the sources may be in /tmp, of which pods have their own.
MOUNTS = (
    Mount("config", "/etc/app", read_only=True),
    Mount("data", "/srv/grange/data"),
    Mount("python", sys.prefix),
    Mount("tests", str(Path(__file__).parent)),
)
ATTEMPTS = """
import json, os, signal, socket, sys
facts = json.loads(sys.argv[1])
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
    "secret by the first process": can(lambda: read("/proc/1/root" + facts["secret"])),
    "directory of the first process": can(lambda: os.readlink("/proc/1/cwd")),
    "other pod": can(lambda: read(facts["other"])),
    "hidden file": can(lambda: read(facts["hidden"])),
    "file in /tmp": can(lambda: read(facts["tmp"])),
    "server": can(lambda: os.kill(facts["server"], 0)),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "host name": socket.gethostname(),
    "hosts": can(lambda: facts["hosts_line"] in read("/etc/hosts")),
    "config": can(lambda: read("/etc/app/app.conf")),
    "config written": can(lambda: write("/etc/app/app.conf")),
    "data": can(lambda: write("/srv/grange/data/file")),
    "tmp": can(lambda: write("/tmp/own")),
    "shm": os.listdir("/dev/shm"),
    "user's file": can(lambda: len(read(facts["users"])) > 0),
    "loopback": can(lambda: socket.create_connection(facts["listener"], 5).close()),
    "who": [os.getuid(), os.getgid()],
}))
"""


@pytest.fixture
async def isolated(
    tmp_path: Path, clock: Clock, log: Logger
) -> AsyncGenerator[ProcessRuntime, None]:
    config = ProcessConfig(
        tmp_path / "data", isolation="auto", hidden=(tmp_path / "kubeconfig", tmp_path / "absent")
    )
    with closing(Threads("runtime", 2)) as offload:
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as made:
            if made.isolation != "namespaces":
                strict = ProcessConfig(tmp_path / "strict", isolation="namespaces")
                with pytest.raises(RuntimeFailedError, match="--isolation none"):
                    async with ProcessRuntime(strict, clock=clock, log=log, offload=offload):
                        pass
                pytest.xfail("the kernel allows no namespaces here; asking for them is refused")
            await made.prepare(SETUP)
            yield made
            for record in made.pods():
                await made.remove(record.sandbox.uid)
    assert marked(tmp_path) == []


async def start(runtime: ProcessRuntime, *command: str, attempt: int = 0) -> ContainerID:
    target = ContainerID(UID, "main", attempt)
    await runtime.start(target, Program(command, {"PATH": os.environ["PATH"]}), MOUNTS)
    return target


async def output(runtime: ProcessRuntime, target: ContainerID) -> str:
    pieces = [piece async for piece in runtime.logs.read(target, LogQuery(follow=True))]
    return b"".join(pieces).decode()


async def test_program_sees_what_is_its_own(isolated: ProcessRuntime, tmp_path: Path) -> None:
    other = PodSetup("uid-2", "default", "other", "node-1", (VolumePlan("data"),))
    other_file = Path((await isolated.prepare(other)).volumes["data"], "file")
    address = (await isolated.prepare(SETUP)).address
    for path in (tmp_path / "data" / "admin.key", tmp_path / "kubeconfig", other_file):
        path.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        facts = {
            "secret": str(tmp_path / "data" / "admin.key"),
            "other": str(other_file),
            "hidden": str(tmp_path / "kubeconfig"),
            "tmp": str(tmp_path / "kubeconfig"),
            "server": os.getpid(),
            "hosts_line": f"{address}\tweb\n",
            "users": __file__,
            "listener": listener.getsockname(),
        }
        target = await start(isolated, sys.executable, "-c", ATTEMPTS, json.dumps(facts))
        found = json.loads(await output(isolated, target))
    processes = found.pop("processes")
    # An empty file is what is left of a hidden one, unless its directory is not there either.
    assert found.pop("hidden file") in ("", "FileNotFoundError")
    assert found.pop("file in /tmp") in ("", "FileNotFoundError")
    assert found.pop("secret by the first process") in ("FileNotFoundError", "PermissionError")
    assert found.pop("directory of the first process") in ("/", "PermissionError")
    assert found == {
        "secret": "FileNotFoundError",
        "other pod": "FileNotFoundError",
        "server": "ProcessLookupError",
        "host name": "web",
        "hosts": True,
        "config": "color: red\n",
        "config written": "OSError",
        "data": True,
        "tmp": True,
        "shm": [],
        "user's file": True,
        "loopback": True,
        "who": [os.getuid(), os.getgid()],
    }
    assert processes == [1, 2]
    assert not Path("/etc/app").exists()  # noqa: ASYNC240  nothing was made on the machine
    assert not Path("/srv/grange").exists()  # noqa: ASYNC240  nothing was made on the machine
    volumes = next(pod for pod in isolated.pods() if pod.setup.uid == UID).sandbox.volumes
    assert Path(volumes["data"], "file").read_text() == "x"  # noqa: ASYNC240  tiny


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 3", 3, 0), ("kill -9 $$", 137, 9), ("kill -TERM $$", 143, 15), ("true", 0, 0)],
)
async def test_end_is_the_programs_end(
    isolated: ProcessRuntime, clock: Clock, script: str, code: int, number: int
) -> None:
    run = await end_of(isolated, await start(isolated, "sh", "-c", script), clock)
    assert (run.exit_code, run.signal) == (code, number)


async def test_program_without_a_handler_ends_by_sigterm(
    isolated: ProcessRuntime, clock: Clock
) -> None:
    target = await start(isolated, "sleep", "600")
    await isolated.signal(target, signal.SIGTERM)
    assert (await end_of(isolated, target, clock)).signal == signal.SIGTERM


async def test_daemons_end_with_the_program(isolated: ProcessRuntime, clock: Clock) -> None:
    seconds = f"{40_000 + os.getpid() % 10_000}.25"
    target = await start(isolated, "sh", "-c", f"setsid sleep {seconds} & echo up; sleep 0.2")
    await end_of(isolated, target, clock)
    assert processes_with(f"sleep {seconds}") == []


async def test_command_joins_what_runs(isolated: ProcessRuntime) -> None:
    target = await start(isolated, "sh", "-c", "echo 1 > /tmp/up; hostname; exec sleep 600")
    reached = "until grep -q ^sleep /proc/2/cmdline; do sleep 0.01; done"
    shown = "cat /tmp/up /etc/app/app.conf /proc/2/cmdline | tr '\\0' ' '; hostname"
    words = ("sh", "-c", f"{reached}; {shown}")
    done = await isolated.run(target, words, LIMIT_S)
    assert done.exit_code == 0, done
    assert done.output == "1\ncolor: red\nsleep 600 web\n"


async def test_renewed_volume_is_seen_by_what_runs(isolated: ProcessRuntime) -> None:
    """As tokens that are renewed; the container keeps its mount."""
    target = await start(isolated, "sleep", "600")
    renewed = VolumePlan("config", (VolumeFile("app.conf", b"color: blue\n", 0o644),))
    await isolated.prepare(replace(SETUP, volumes=(renewed, *SETUP.volumes[1:])))
    done = await isolated.run(target, ("cat", "/etc/app/app.conf"), LIMIT_S)
    assert done.output == "color: blue\n", done


async def test_other_user_has_the_view_too(isolated: ProcessRuntime) -> None:
    """An agent that is root runs programs as others; any other runs them as itself."""
    user = (65534, 65534) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    sandbox = await isolated.prepare(replace(SETUP, uid="uid-3", shared=os.geteuid() == 0))
    target = ContainerID("uid-3", "main", 0)
    script = f"id -u; cat /etc/app/app.conf; echo 2 > /srv/grange/data/f; ls {sandbox.tmp} /tmp; ls /proc/1/root"
    program = Program(("sh", "-c", script), {"PATH": os.environ["PATH"]}, user=user)
    await isolated.start(target, program, MOUNTS)
    found = (await output(isolated, target)).splitlines()
    assert found[:2] == [str(user[0]), "color: red"], found
    assert Path(sandbox.volumes["data"], "f").read_text() == "2\n"  # noqa: ASYNC240  tiny


async def test_program_in_a_volume_is_found_or_not(isolated: ProcessRuntime, clock: Clock) -> None:
    run = await end_of(isolated, await start(isolated, "/etc/app/missing"), clock)
    assert (run.exit_code, run.reason) == (127, "StartError")
    assert run.message == 'program "/etc/app/missing" not found: there is no such file'


async def test_volume_is_found_by_its_link_in_the_root(
    isolated: ProcessRuntime, tmp_path: Path
) -> None:
    """Also one that is a path of the machine which the container does not see."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("from the machine\n")
    plans = (*SETUP.volumes, VolumePlan("shared", host_path=str(tmp_path / "shared")))
    await isolated.prepare(replace(SETUP, volumes=plans))
    target = ContainerID(UID, "main", 0)
    program = Program(
        ("sh", "-c", "cat etc/app/app.conf state/file; echo back > state/answer"),
        {"PATH": os.environ["PATH"]},
    )
    await isolated.start(target, program, (*MOUNTS, Mount("shared", "/state")))
    assert await output(isolated, target) == "color: red\nfrom the machine\n"
    assert (tmp_path / "shared" / "answer").read_text() == "back\n"


async def test_name_is_looked_up_where_the_program_sees_it(
    isolated: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    """A directory of PATH that a container does not have is passed over."""
    hidden = tmp_path / "data" / "bin"
    hidden.mkdir()
    (hidden / "echo").write_text("#!/bin/sh\n")
    (hidden / "echo").chmod(0o755)
    search = f"{hidden}:{os.environ['PATH']}"
    target = ContainerID(UID, "main", 0)
    await isolated.start(target, Program(("echo", "found"), {"PATH": search}), MOUNTS)
    assert await output(isolated, target) == "found\n"
    missing = ContainerID(UID, "other", 0)
    await isolated.start(missing, Program(("missing",), {"PATH": search}), MOUNTS)
    run = await end_of(isolated, missing, clock)
    assert (run.exit_code, run.reason) == (127, "StartError")
    assert run.message == f'program "missing" not found in PATH={search}'


def shim_of(runtime: ProcessRuntime, target: ContainerID) -> int:
    stat = Path(f"/proc/{run_of(runtime, target).pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


async def test_first_process_takes_little_memory(isolated: ProcessRuntime) -> None:
    """It is paid for each container; a forked interpreter has five times as much."""
    target = await start(isolated, "sleep", "600")
    shim = shim_of(isolated, target)
    children = {int(pid) for pid in Path(f"/proc/{shim}/task/{shim}/children").read_text().split()}  # noqa: ASYNC240  /proc
    [first] = children - {run_of(isolated, target).pid}
    # The program starts at the same time, so it may still be a forked interpreter.
    eventually(lambda: Path(f"/proc/{first}/comm").read_text() == "cat\n", "it executes cat")
    own = Path(f"/proc/{first}/smaps_rollup").read_text().partition("Private_Dirty:")[2].split()  # noqa: ASYNC240  /proc
    assert int(own[0]) < 500, own[:2]


async def test_nothing_is_left_when_the_supervisor_is_killed(
    isolated: ProcessRuntime, clock: Clock
) -> None:
    seconds = f"{50_000 + os.getpid() % 10_000}.25"
    target = await start(isolated, "sh", "-c", f"setsid sleep {seconds} & exec sleep {seconds}")
    os.kill(shim_of(isolated, target), signal.SIGKILL)
    run = await end_of(isolated, target, clock)
    assert run.reason == "ContainerStatusUnknown"
    eventually(lambda: not processes_with(f"sleep {seconds}"), "all of the container ends", LIMIT_S)


async def test_namespaces_end_with_the_supervisor_alone(
    isolated: ProcessRuntime,
) -> None:
    """Without a runtime that kills what is left, and though a program holds the first process's input open."""
    seconds = f"{70_000 + os.getpid() % 10_000}.25"
    hold = (
        f"exec 3> /proc/1/fd/0; (sleep {seconds} & sleep 0); touch /tmp/held; exec sleep {seconds}"
    )
    target = await start(isolated, "sh", "-c", hold)
    held = await isolated.run(
        target, ("sh", "-c", "until test -e /tmp/held; do sleep 0.01; done"), LIMIT_S
    )
    assert held.exit_code == 0, held
    supervisor = shim_of(isolated, target)
    await isolated.__aexit__(None, None, None)
    assert processes_with(f"sleep {seconds}")
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not processes_with(f"sleep {seconds}"), "all of the container ends", LIMIT_S)


async def test_next_runtime_joins_a_container_it_did_not_start(
    isolated: ProcessRuntime, tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """With another setting: each container keeps the view that it was started with."""
    target = await start(isolated, "sh", "-c", "echo 1 > /tmp/up; exec sleep 600")
    await isolated.__aexit__(None, None, None)
    offload = Threads("runtime", 2)
    config = ProcessConfig(tmp_path / "data", isolation="none")
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as second:
        done = await second.run(target, ("sh", "-c", "cat /tmp/up"), LIMIT_S)
        assert done.output == "1\n", done
        await second.remove(UID)
    offload.close()


@pytest.mark.parametrize("words", [[], ["--unprivileged"]], ids=["as it is", "unprivileged"])
def test_user_namespace_is_used_where_there_are_no_rights(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "secret").write_text("secret")
    script = f"id -u; hostname; cat {tmp_path}/secret; echo $(($(ls -d /proc/[0-9]* | wc -l) < 6))"
    runner = Path(__file__).with_name("isolated_run.py")
    done = subprocess.run(
        [sys.executable, str(runner), str(tmp_path), script, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        assert "--isolation none" in done.stderr, done
        pytest.xfail("the kernel allows no namespaces here; asking for them is refused")
    lines = [line for line in done.stdout.splitlines() if "cat:" not in line]
    assert lines == [str(os.getuid()), "web", "1", "exit code 0"]


IN_CLUSTER = """
from kubernetes import client, config
config.load_incluster_config()
review = client.AuthenticationV1Api().create_self_subject_review({})
print(review.status.user_info.username)
print(open("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read())
"""


def test_cluster_configuration_is_at_its_fixed_paths(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data", words=("--isolation", "auto"))
    try:
        plane.start()
        eventually(lambda: bool(plane.get("nodes")["items"]), "the node registers")
        [node] = plane.get("nodes")["items"]
        if node["metadata"]["labels"]["grange.dev/isolation"] == "none":
            pytest.xfail("the kernel allows no namespaces here; asking for them is refused")
        main = {
            "name": "main",
            "command": [sys.executable, "-c", IN_CLUSTER],
            "volumeMounts": [{"name": "python", "mountPath": sys.prefix}],
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "inside"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [main],
                "volumes": [{"name": "python", "hostPath": {"path": sys.prefix}}],
            },
        }
        plane.grange("apply", "-f", "-", stdin=json.dumps(pod))
        phases = {"Succeeded", "Failed"}
        eventually(
            lambda: plane.get("pod", "inside").get("status", {}).get("phase") in phases, "it ends"
        )
        assert plane.grange("logs", "inside") == "system:serviceaccount:default:default\ndefault\n"
    finally:
        plane.stop()


async def test_directories_below_tmp_are_shown_where_asked(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """As the one that `grange up` is started in. The data directory in it stays hidden."""
    desk = Path(tempfile.mkdtemp(dir="/tmp"))
    (desk / "app").mkdir()
    (desk / "app" / "file").write_text("from the machine\n")
    (desk / "data").mkdir()
    (desk / "data" / "secret").write_text("secret")
    config = ProcessConfig(desk / "data", isolation="auto", shown=(desk, Path("/tmp/absent")))  # noqa: S108  likewise
    with closing(Threads("runtime", 2)) as offload:
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as made:
            setup = PodSetup(UID, "default", "web", "node-1", (VolumePlan("data"),))
            await made.prepare(setup)
            target = ContainerID(UID, "main", 0)
            script = f"cat file; cat ../data/secret 2>&1; ls -A {desk}; echo 2 > ../answer; touch /tmp/own"
            program = Program(
                ("sh", "-c", script), {"PATH": os.environ["PATH"]}, working_dir=str(desk / "app")
            )
            await made.start(target, program, (Mount("data", "/tmp/data/deep"),))  # noqa: S108  in its own
            shown = (await output(made, target)).splitlines()
            volumes = made.pods()[0].sandbox.volumes
            if made.isolation == "namespaces":
                assert not any(Path(volumes["data"]).iterdir())  # noqa: ASYNC240  tiny
                assert shown[0] == "from the machine"
                assert "No such file" in shown[1]
                assert shown[2:] == ["app", "data"]
                assert (desk / "answer").read_text() == "2\n"
                assert not Path("/tmp/own").exists()  # noqa: ASYNC240,S108  in the pod's directory
            await made.remove(UID)
    shutil.rmtree(desk)


async def test_tmp_of_the_pod_is_not_replaced_by_a_mount_in_it(isolated: ProcessRuntime) -> None:
    """Containers of a pod share it, and it is as large as the disk."""
    writer = ContainerID(UID, "writer", 0)
    environment = {"PATH": os.environ["PATH"]}
    mounts = (*MOUNTS, Mount("data", "/tmp/data"))  # noqa: S108  the pod's
    large = Program(("sh", "-c", "head -c 3000000 /dev/zero > /tmp/large"), environment)
    await isolated.start(writer, large, mounts)
    assert await output(isolated, writer) == ""
    reader = ContainerID(UID, "reader", 0)
    await isolated.start(reader, Program(("sh", "-c", "wc -c < /tmp/large"), environment), mounts)
    assert await output(isolated, reader) == "3000000\n"


async def test_program_below_tmp_is_not_found_with_a_hint(
    isolated: ProcessRuntime, clock: Clock
) -> None:
    run = await end_of(isolated, await start(isolated, "/tmp/absent/program"), clock)  # noqa: S108  of the pod
    assert (run.exit_code, run.reason) == (127, "StartError")
    assert "the pod has its own /tmp: mount the directory" in run.message
