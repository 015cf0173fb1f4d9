"""Pods with a network namespace each, with ``--network netns``: as root only; else that it is refused."""

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually, pod
from tests.e2e.test_leaks import shims
from tests.e2e.test_pod_addresses import until_answered
from tests.support import network_namespaces

from grange.agent.container_runtime import (
    ContainerID,
    Mount,
    PodSetup,
    Program,
    RuntimeFailedError,
    VolumePlan,
)
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads

pytestmark = pytest.mark.e2e

ENV = {"PATH": os.environ["PATH"]}
SERVER = ("-m", "http.server", "8080")
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
CALLER = """
import http.client, json, os, ssl, urllib.request
names = set()
while len(names) < 2:
    names.add(urllib.request.urlopen(f"http://{os.environ['WEB_SERVICE_HOST']}:80", timeout=5).read())
account = os.environ["GRANGE_SERVICE_ACCOUNT"]
connection = http.client.HTTPSConnection(
    os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]), timeout=5,
    context=ssl.create_default_context(cafile=f"{account}/ca.crt"))
token = open(f"{account}/token").read()
connection.request("GET", "/api", headers={"Authorization": f"Bearer {token}"})
print(len(names), json.load(connection.getresponse())["kind"])
"""


@pytest.fixture
async def runtime(
    tmp_path: Path, clock: Clock, log: Logger
) -> AsyncGenerator[ProcessRuntime, None]:
    config = ProcessConfig(tmp_path, programs_network="netns")
    with closing(Threads("runtime", 2)) as offload:
        made = ProcessRuntime(config, clock=clock, log=log, offload=offload)
        if not network_namespaces.are_possible():
            with pytest.raises(RuntimeFailedError, match=r"--network netns: .* --network auto"):
                await made.__aenter__()
            pytest.xfail("no network namespaces can be made here; asking for them is refused")
        async with made:
            yield made
            for record in made.pods():
                await made.remove(record.sandbox.uid)
    assert network_namespaces.left_of(tmp_path) == []


async def start(
    runtime: ProcessRuntime, name: str, *command: str, host_network: bool = False
) -> ContainerID:
    target = ContainerID(f"uid-{name}", "main", 0)
    python = VolumePlan("python", host_path=sys.prefix)
    setup = PodSetup(
        target.pod_uid, "default", name, "node-1", (python,), host_network=host_network
    )
    await runtime.prepare(setup)
    await runtime.start(target, Program(command, ENV), (Mount("python", sys.prefix),))
    return target


def address_of(runtime: ProcessRuntime, target: ContainerID) -> str:
    return runtime.pods(target.pod_uid)[0].sandbox.address


async def can_connect(
    runtime: ProcessRuntime, target: ContainerID, host: str, port: int = 8080
) -> bool:
    words = (sys.executable, "-c", CONNECT, host, str(port))
    return (await runtime.run(target, words, 30.0)).exit_code == 0


async def test_pods_have_networks_to_themselves(runtime: ProcessRuntime, clock: Clock) -> None:
    assert runtime.network == "netns"
    targets = [await start(runtime, name, sys.executable, *SERVER) for name in ("a", "b")]
    addresses = [address_of(runtime, target) for target in targets]
    for address in addresses:
        assert b"200 OK" in await until_answered(address, 8080, clock)
    first, second = targets
    assert await can_connect(runtime, first, "127.0.0.1")
    assert await can_connect(runtime, first, addresses[1])
    listening = {(item.pod_uid, item.port) for item in await runtime.listeners()}
    assert listening == {(first.pod_uid, 8080), (second.pod_uid, 8080)}
    with socket.create_server(("127.0.0.1", 0)) as machines:
        assert not await can_connect(runtime, first, "127.0.0.1", machines.getsockname()[1])


async def test_own_loopback_of_a_pod_is_not_the_machines(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as machines:
        port = machines.getsockname()[1]
        words = (sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1")
        target = await start(runtime, "a", *words)
        async with clock.timeout(30.0):
            while not await runtime.listeners():
                await clock.sleep(0.05)
        connection = await runtime.connect(target.pod_uid, port)
        await connection.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await connection.read()
        await connection.close()


async def test_pod_on_the_machines_network_has_no_namespace(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    target = await start(runtime, "a", "sleep", "600", host_network=True)
    assert network_namespaces.left_of(tmp_path) == []
    with socket.create_server(("127.0.0.1", 0)) as machines:
        assert await can_connect(runtime, target, "127.0.0.1", machines.getsockname()[1])


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    if not network_namespaces.are_possible():
        pytest.xfail("no network namespaces can be made here; test of the runtime: refused")
    made = Plane(tmp_path / "data", words=("--network", "netns"))
    made.start()
    yield made
    made.stop()
    assert network_namespaces.left_of(made.directory) == []


def web(name: str) -> dict[str, Any]:
    """A server on all addresses that answers with the name of its pod."""
    script = f"echo {name} > index.html; exec {sys.executable} -m http.server 8080"
    probe = {"readinessProbe": {"httpGet": {"path": "/", "port": 8080}}}
    made: dict[str, Any] = json.loads(pod(name, "sh", "-c", script, container=probe))
    made["metadata"]["labels"] = {"app": "web"}
    return made


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


def test_services_and_probes_reach_pods_in_namespaces(plane: Plane) -> None:
    items = [SERVICE, web("web-0"), web("web-1")]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    plane.grange("apply", "-f", "-", "--wait", "--timeout", "120s", stdin=json.dumps(document))
    [node] = plane.get("nodes")["items"]
    assert node["metadata"]["labels"]["grange.dev/network"] == "netns"
    caller = pod("caller", sys.executable, "-c", CALLER, restartPolicy="OnFailure")
    plane.grange("apply", "-f", "-", stdin=caller)
    eventually(
        lambda: plane.get("pod", "caller").get("status", {}).get("phase") == "Succeeded",
        "the caller has its answers",
    )
    assert plane.grange("logs", "caller") == "2 APIVersions\n"


def test_namespaces_are_removed_after_kills(plane: Plane) -> None:
    names = ("web-0", "web-1", "web-2")
    document = {"apiVersion": "v1", "kind": "List", "items": [web(name) for name in names]}
    plane.grange("apply", "-f", "-", "--wait", "--timeout", "120s", stdin=json.dumps(document))
    assert len(network_namespaces.left_of(plane.directory)) == len(names)
    plane.kill()
    os.kill(shims(plane.directory)[0], signal.SIGKILL)
    plane.start()
    eventually(
        lambda: all(
            condition["status"] == "True"
            for name in names
            for condition in plane.get("pod", name)["status"]["conditions"]
            if condition["type"] == "Ready"
        ),
        "all are ready again",
    )
    assert len(network_namespaces.left_of(plane.directory)) == len(names)
    plane.grange("delete", "pods", "--all", "--timeout", "120s")
    eventually(
        lambda: network_namespaces.left_of(plane.directory) == [], "their namespaces are gone"
    )


async def test_address_of_another_control_plane_is_passed_over(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """Ranges are by hash of the data directory, so that two of a machine may be the same."""
    setup = PodSetup("uid-a", "default", "a", "node-1")
    first = await runtime.prepare(setup)
    config = ProcessConfig(
        tmp_path / "other", network=runtime.pod_network, programs_network="netns"
    )
    config.data_dir.mkdir()
    with closing(Threads("runtime", 2)) as offload:
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as other:
            second = await other.prepare(setup)
            assert second.address != first.address
            assert (await other.prepare(setup)).address == second.address
            await other.remove(setup.uid)
    assert network_namespaces.left_of(config.data_dir) == []
