"""Replicas of an ordinary server from an image listen on all addresses, each on its pod's.

Collected where there is a containerd: on a Debian system as root (see ``conftest``).
"""

import json
import os
import signal
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually
from tests.support import containerd, seccomp_agents
from tests.support.containerd import BUSYBOX, OLD_RUNC, Containerd
from tests.support.own_port import own_port

from grange.agent.container_runtime import ContainerID, ImageProgram, PodSetup, Program
from grange.agent.runtimes.cri.cri_client import CALL_LIMIT_S, CriClient, CriError, GrpcCriClient
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.cri_runtime import CriRuntime
from grange.agent.runtimes.process.launcher import Launcher
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline, Threads
from grange.base.tasks import Nursery

pytestmark = pytest.mark.e2e

WEB = "grange.test/web:1"
PORT = own_port(2)
PAGE = ("wget", "-q", "-O", "-", f"http://localhost:{PORT}/hosts")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    with containerd.running(tmp_path_factory.mktemp("containerd")) as made:
        made.add_image(WEB, ("/bin/httpd", "-f", "-p", str(PORT), "-h", "/etc"))
        yield made


@pytest.fixture
def plane(daemon: Containerd, tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path / "data", words=("--cri-socket", str(daemon.socket)))
    made.start()
    yield made
    made.stop()
    assert seccomp_agents.sockets(made.directory) == []
    eventually(lambda: agents(made) == [], "seccomp agents end")


def agents(plane: Plane) -> list[int]:
    return seccomp_agents.running(plane.directory)


def web(**fields: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "image": WEB,
        "readinessProbe": {"httpGet": {"path": "/hosts", "port": PORT}, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": PAGE}, "timeoutSeconds": 10},
        **fields,
    }
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [main]},
    }
    spec = {"replicas": 3, "placement": "Packed", "template": template}
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web"},
        "spec": spec,
    }


def service() -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": PORT}]
    spec = {"selector": {"app": "web"}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


def client() -> dict[str, Any]:
    main = {"name": "main", "image": BUSYBOX, "command": ["sleep", "600"]}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}


def apply(plane: Plane, *documents: object) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    plane.grange("apply", "-f", "-", "--wait", stdin=json.dumps(items))


def replicas(plane: Plane) -> dict[str, tuple[str, int, bool]]:
    """Container, restarts and readiness of each replica."""
    found = {}
    for item in plane.get("pods", "-l", "app=web")["items"]:
        [main] = item["status"].get("containerStatuses") or [{}]
        key = item["metadata"]["name"]
        found[key] = (
            main.get("containerID", ""),
            main.get("restartCount", 0),
            main.get("ready", False),
        )
    return found


def states(plane: Plane) -> list[tuple[int, bool]]:
    return [state[1:] for state in replicas(plane).values()]


def kill_agents(plane: Plane) -> None:
    found = agents(plane)
    assert len(found) == 3
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def inside(plane: Plane, name: str, *command: str) -> str:
    done = plane.cli.run("exec", name, "--kubeconfig", str(plane.kubeconfig), "--", *command)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return str(done.stdout)


def remove_all(plane: Plane, daemon: Containerd) -> None:
    plane.grange("scale", "replicationcontroller/web", "--replicas", "0")
    plane.grange("delete", "replicationcontroller/web")
    plane.grange("delete", "pods", "--all")
    eventually(lambda: not daemon.containers(), "containers go")


def test_replicas_of_an_image_have_one_port(plane: Plane, daemon: Containerd) -> None:
    """Found by the Service's name, at localhost, by probes, and after a take-over."""
    apply(plane, web(), service(), client())
    before = replicas(plane)
    assert states(plane) == 3 * [(0, True)]
    assert "localhost" in inside(plane, "client", "wget", "-q", "-O", "-", "http://web/hosts")
    assert len(agents(plane)) == 3
    plane.kill()
    plane.start()
    for name in before:
        assert name in inside(plane, name, *PAGE)
    assert replicas(plane) == before
    remove_all(plane, daemon)


def test_container_whose_seccomp_agent_dies_is_restarted(plane: Plane, daemon: Containerd) -> None:
    apply(plane, web())
    kill_agents(plane)
    eventually(lambda: states(plane) == 3 * [(1, True)], "all are restarted")
    [first, *_] = plane.get("pods", "-l", "app=web")["items"]
    ended = first["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    assert "grange-seccomp" in ended["message"]
    plane.kill()
    kill_agents(plane)
    plane.start()
    eventually(lambda: states(plane) == 3 * [(2, True)], "all are restarted again")
    for name in replicas(plane):
        assert name in inside(plane, name, *PAGE)
    remove_all(plane, daemon)


@pytest.fixture
def wrap() -> Callable[[CriClient], CriClient]:
    return lambda client: client


@pytest.fixture
async def runtime(
    daemon: Containerd,
    tmp_path: Path,
    clock: Clock,
    log: Logger,
    wrap: Callable[[CriClient], CriClient],
) -> AsyncGenerator[CriRuntime, None]:
    offload = Threads("runtime", 2)
    processes = ProcessRuntime(
        ProcessConfig(tmp_path, programs_network="addresses"),
        clock=clock,
        log=log,
        offload=offload,
    )
    made = CriRuntime(
        CriConfig(tmp_path, daemon.socket),
        clock=clock,
        log=log,
        offload=offload,
        client=wrap(GrpcCriClient(daemon.socket, clock)),
        launcher=processes,
    )
    async with AsyncExitStack() as stack:
        stack.callback(offload.close)
        await stack.enter_async_context(processes)
        await stack.enter_async_context(made)
        yield made
        for record in made.pods():
            await made.remove(record.sandbox.uid)


async def bound(
    runtime: CriRuntime, name: str, clock: Clock, *, handler: str = "", **security: Any
) -> tuple[str, str]:
    """The pod's address in IPv6, and the one that a server gets that listens on all."""
    setup = PodSetup(
        f"uid-{name}",
        "default",
        name,
        "node-1",
        runtime_handler=handler,
        privileged=bool(security.get("privileged")),
    )
    address = (await runtime.prepare(setup)).address
    target = ContainerID(setup.uid, "main", 0)
    image = ImageProgram(WEB, (), 0, security)
    await runtime.start(target, Program((), {"PATH": "/bin"}, image=image), ())
    async with clock.timeout(60.0):
        while not (found := [x for x in await runtime.listeners() if x.pod_uid == setup.uid]):
            await clock.sleep(0.05)
    await runtime.remove(setup.uid)
    return str(ip_address(f"::ffff:{address}")), found[0].address


@pytest.mark.parametrize(
    "security",
    [
        {"capabilities": {"add": ["SYS_ADMIN"]}},
        {
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    ],
    ids=["more rights", "few rights"],
)
async def test_container_of_any_rights_gets_the_address(
    runtime: CriRuntime, clock: Clock, security: dict[str, Any]
) -> None:
    address, found = await bound(runtime, "a", clock, **security)
    assert found == address


@pytest.mark.parametrize(
    "security",
    [{"privileged": True}, {"seccompProfile": {"type": "Unconfined"}}],
    ids=["privileged", "own profile"],
)
async def test_container_without_default_profile_is_left_alone(
    runtime: CriRuntime, clock: Clock, security: dict[str, Any]
) -> None:
    assert (await bound(runtime, "a", clock, **security))[1] == "::"


class RefusingClient:
    """Refuses the profile when a container is created, as CRI-O does, which calls runc there."""

    def __init__(self, client: CriClient) -> None:
        self._client = client
        self.close = client.close

    async def call(
        self, method: str, request: Mapping[str, Any], limit_s: float | None = CALL_LIMIT_S
    ) -> dict[str, Any]:
        if method == "CreateContainer" and "listenerPath" in profile_of(request):
            raise CriError("UNKNOWN", "SCMP_ACT_NOTIFY is not a valid action for seccomp")
        return await self._client.call(method, request, limit_s)


def profile_of(request: Mapping[str, Any]) -> str:
    seccomp = request["config"]["linux"]["security_context"].get("seccomp") or {}
    path = seccomp.get("localhost_ref")
    return Path(path).read_text() if path else ""


Records = list[tuple[str, dict[str, object]]]


def refusals(records: Records) -> list[str]:
    begin = "containers listen on all"
    return [str(facts["error"]) for event, facts in records if event.startswith(begin)]


async def test_runtime_that_refuses_the_filter_goes_without(
    runtime: CriRuntime, clock: Clock, records: Records
) -> None:
    found = [(await bound(runtime, name, clock, handler=OLD_RUNC))[1] for name in "ab"]
    assert found == ["::", "::"]
    [error] = refusals(records)
    assert "SCMP_ACT_NOTIFY" in error
    address, last = await bound(runtime, "c", clock)
    assert last == address


@pytest.mark.parametrize("wrap", [RefusingClient])
async def test_filter_that_is_refused_at_creation_is_left_out(
    runtime: CriRuntime, clock: Clock, records: Records
) -> None:
    assert (await bound(runtime, "a", clock))[1] == "::"
    assert len(refusals(records)) == 1


async def test_program_that_cannot_be_started_is_no_refusal(
    runtime: CriRuntime, clock: Clock, records: Records
) -> None:
    await runtime.prepare(PodSetup("uid-a", "default", "a", "node-1"))
    program = Program(("seccomp",), {"PATH": "/bin"}, image=ImageProgram(WEB))
    run = await runtime.start(ContainerID("uid-a", "main", 0), program, ())
    assert run.exit_code == 127
    assert refusals(records) == []
    address, found = await bound(runtime, "b", clock)
    assert found == address


async def test_container_that_is_being_started_is_taken_over(
    runtime: CriRuntime, daemon: Containerd, tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """By an agent that was killed before the container runtime answered."""
    setup = PodSetup("uid-a", "default", "a", "node-1", runtime_handler=OLD_RUNC, host_network=True)
    await runtime.prepare(setup)
    target = ContainerID("uid-a", "main", 0)
    environment = {"PATH": "/bin", "SLOW_START": "yes"}
    program = Program(("sleep", "600"), environment, image=ImageProgram(BUSYBOX))
    slow = f"{daemon.directory}/{OLD_RUNC}-slow"
    config = CriConfig(tmp_path, daemon.socket)
    async with Nursery("start") as nursery:
        nursery.start(wait_for(runtime.start(target, program, ())))
        await until(lambda: os.path.exists(slow), clock)
        async with CriRuntime(config, clock=clock, log=log, offload=Inline()) as successor:
            [record] = successor.pods()
            assert [run.running for run in record.runs] == [True]
            async with clock.timeout(60.0):
                while not await successor.usage():
                    await clock.sleep(0.05)


async def until(holds: Callable[[], bool], clock: Clock) -> None:
    async with clock.timeout(60.0):
        while not holds():
            await clock.sleep(0.05)


async def wait_for(work: Awaitable[object]) -> None:
    await work


async def test_seccomp_agent_waits_for_the_next_connection(tmp_path: Path, clock: Clock) -> None:
    """Until its path is removed: the node agent was killed, and a container is being started."""
    path = f"/run/grange-test-{os.getpid()}"  # short enough for a socket
    lock = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    launcher = Launcher(lock, tmp_path)
    spec: dict[str, object] = {"socket": path, "address": "127.0.0.2", "ports": ""}
    with launcher.request("answer binds", "", spec) as first:
        first.settimeout(60.0)
        assert first.recv(100) == b"{}"
    with socket.socket(socket.AF_UNIX) as second:
        second.connect(path)
        credentials = second.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, *_ = struct.unpack("3i", credentials)
        os.unlink(path)
    await until(lambda: not os.path.exists(f"/proc/{pid}"), clock)
    launcher.close()
    os.close(lock)
