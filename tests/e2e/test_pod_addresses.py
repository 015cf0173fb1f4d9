"""Replicas that listen on all addresses get their pod's, and are found at localhost in it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S
from tests.e2e.test_process_runtime import end_of, run_of
from tests.support.marked_processes import marked

from grange.agent.container_runtime import (
    ContainerID,
    LogQuery,
    Mount,
    PodSetup,
    Program,
    Sandbox,
    VolumePlan,
)
from grange.agent.runtimes.process import bind_filter
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads

pytestmark = pytest.mark.e2e

MOUNTS = (Mount("python", sys.prefix),)
BINDS = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
port = int(sys.argv[1])
def bound(family, kind, host, port, only=None):
    with socket.socket(family, kind) as made:
        if only is not None:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        try:
            made.bind((host, port))
        except OSError as error:
            return type(error).__name__
        return made.getsockname()[0]
INET, INET6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
held = socket.create_server(("", port))
print(json.dumps({
    "all": held.getsockname()[0],
    "again": bound(INET, TCP, "", port),
    "loopback": bound(INET, TCP, "127.0.0.1", port),
    "no port": bound(INET, TCP, "", 0),
    "udp": bound(INET, UDP, "", port),
    "both families": bound(INET6, TCP, "::", port + 1, 0),
    "v6 only": bound(INET6, TCP, "::", port + 2, 1),
    "not ours": bound(INET, TCP, "192.0.2.1", port),
    "thread": ThreadPoolExecutor().submit(bound, INET, TCP, "", port + 3).result(),
}))
"""


def is_supported() -> bool:
    """Whether the kernel lets a program be asked; tried in a child, which cannot get rid of it."""
    child = os.fork()
    if child == 0:
        try:
            bind_filter.install()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture(params=["none", "auto"])
async def runtime(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, log: Logger
) -> AsyncGenerator[ProcessRuntime, None]:
    offload = Threads("runtime", 2)
    config = ProcessConfig(tmp_path, isolation=request.param, programs_network="auto")
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as made:
        assert made.network == ("replicas" if is_supported() else "shared")
        yield made
        for record in made.pods():
            await made.remove(record.sandbox.uid)
    offload.close()
    assert marked(tmp_path) == []


async def prepared(
    runtime: ProcessRuntime, name: str, *, is_replica: bool = True, host_network: bool = False
) -> Sandbox:
    python = VolumePlan("python", host_path=sys.prefix)  # it may be in /tmp
    setup = PodSetup(
        f"uid-{name}",
        "default",
        name,
        "node-1",
        (python,),
        host_network=host_network,
        is_replica=is_replica,
    )
    return await runtime.prepare(setup)


async def start(
    runtime: ProcessRuntime, name: str, *command: str, container: str = "main"
) -> ContainerID:
    target = ContainerID(f"uid-{name}", container, 0)
    await runtime.start(target, Program(command, {"PATH": os.environ["PATH"]}), MOUNTS)
    return target


async def output(runtime: ProcessRuntime, target: ContainerID) -> str:
    pieces = [piece async for piece in runtime.logs.read(target, LogQuery(follow=True))]
    return b"".join(pieces).decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def until_answered(address: str, port: int, clock: Clock) -> bytes:
    async with clock.timeout(LIMIT_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection(address, port)
            except OSError:
                await clock.sleep(0.05)
                continue
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            line = await reader.readline()
            writer.close()
            return line


async def test_replicas_of_an_ordinary_server_have_one_port(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    port = free_port()
    names = ("a", "b", "c")
    addresses = [(await prepared(runtime, name)).address for name in names]
    words = (sys.executable, "-m", "http.server", str(port))
    targets = [await start(runtime, name, *words) for name in names]
    if not is_supported():
        codes = sorted([(await end_of(runtime, target, clock)).exit_code for target in targets[1:]])
        assert codes == [1, 1]  # as without the setting
        return
    for address in addresses:
        assert b"200 OK" in await until_answered(address, port, clock)
    assert all(run_of(runtime, target).running for target in targets)
    for target in targets:
        await runtime.signal(target, signal.SIGTERM)
        assert (await end_of(runtime, target, clock)).signal == signal.SIGTERM


async def test_only_wildcards_with_a_port_are_replaced(runtime: ProcessRuntime) -> None:
    address = (await prepared(runtime, "a")).address
    port = free_port()
    target = await start(runtime, "a", sys.executable, "-c", BINDS, str(port))
    found = json.loads(await output(runtime, target))
    wildcard = address if is_supported() else "0.0.0.0"  # noqa: S104  compared
    assert found == {
        "all": wildcard,
        "again": "OSError",
        "loopback": "127.0.0.1" if is_supported() else "OSError",
        "no port": "0.0.0.0",  # noqa: S104  compared
        "udp": wildcard,
        "both families": f"::ffff:{address}" if is_supported() else "::",
        "v6 only": "::",
        "not ours": "OSError",
        "thread": wildcard,
    }


async def test_filter_outlives_the_first_program(runtime: ProcessRuntime, clock: Clock) -> None:
    """A shell that starts the server and becomes another program."""
    address = (await prepared(runtime, "a")).address
    port = free_port()
    script = f"{sys.executable} -m http.server {port} & exec sleep 600"
    target = await start(runtime, "a", "sh", "-c", script)
    if is_supported():
        assert b"200 OK" in await until_answered(address, port, clock)
    await runtime.signal(target, signal.SIGKILL)
    assert (await end_of(runtime, target, clock)).signal == signal.SIGKILL


@pytest.mark.parametrize(
    "options", [{"host_network": True}, {"is_replica": False}], ids=["host network", "no replica"]
)
async def test_pod_on_the_machines_network_binds_all_addresses(
    runtime: ProcessRuntime, clock: Clock, options: dict[str, bool]
) -> None:
    await prepared(runtime, "a", **options)
    port = free_port()
    target = await start(runtime, "a", sys.executable, "-m", "http.server", str(port))
    assert b"200 OK" in await until_answered("127.0.0.1", port, clock)
    await runtime.signal(target, signal.SIGKILL)
    await end_of(runtime, target, clock)


CONNECTS = """
import contextlib, errno, json, select, socket, sys
from concurrent.futures import ThreadPoolExecutor
port, other, closed = (int(word) for word in sys.argv[1:])
def peer(family, host, port, kind=socket.SOCK_STREAM, blocking=True):
    with socket.socket(family, kind) as made:
        made.setblocking(blocking)
        try:
            with contextlib.suppress(BlockingIOError):
                made.connect((host, port))
            select.select([], [made], [], 10)
            if found := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(found, "")
            return made.getpeername()[0]
        except OSError as error:
            return errno.errorcode[error.errno]
INET, INET6, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM
print(json.dumps({
    "localhost": peer(INET, "127.0.0.1", port),
    "without blocking": peer(INET, "127.0.0.1", port, blocking=False),
    "wildcard": peer(INET, "0.0.0.0", port),
    "v6": peer(INET6, "::1", port),
    "mapped": peer(INET6, "::ffff:127.0.0.1", port),
    "machine": peer(INET, "127.0.0.1", other),
    "nothing": peer(INET, "127.0.0.1", closed),
    "datagrams": peer(INET, "127.0.0.1", port, kind=UDP),
    "thread": ThreadPoolExecutor().submit(peer, INET, "127.0.0.1", port).result(),
}))
"""


@pytest.mark.skipif(not is_supported(), reason="the kernel has no such filter")
async def test_localhost_leads_to_what_listens_in_the_pod(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    port, closed = free_port(), free_port()
    addresses = [(await prepared(runtime, name)).address for name in ("a", "b")]
    for name in ("a", "b"):
        await start(runtime, name, sys.executable, "-m", "http.server", str(port))
    for address in addresses:
        await until_answered(address, port, clock)
    with socket.create_server(("127.0.0.1", 0)) as machine:
        words = (str(port), str(machine.getsockname()[1]), str(closed))
        command = (sys.executable, "-c", CONNECTS, *words)
        sidecar = await start(runtime, "b", *command, container="sidecar")
        found = json.loads(await output(runtime, sidecar))
        executed = await runtime.run(ContainerID("uid-a", "main", 0), command, LIMIT_S)
    expected = {
        "localhost": addresses[1],
        "without blocking": addresses[1],
        "wildcard": addresses[1],
        "v6": f"::ffff:{addresses[1]}",
        "mapped": f"::ffff:{addresses[1]}",
        "machine": "127.0.0.1",
        "nothing": "ECONNREFUSED",
        "datagrams": "127.0.0.1",
        "thread": addresses[1],
    }
    assert found == expected
    text = json.dumps(expected).replace(addresses[1], addresses[0])
    assert json.loads(executed.output) == json.loads(text)
    for name in ("a", "b"):
        target = ContainerID(f"uid-{name}", "main", 0)
        await runtime.signal(target, signal.SIGKILL)
        await end_of(runtime, target, clock)


ODD_CALLS = """
import ctypes, errno, json, os, socket, struct, sys
port = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def connect(descriptor, place, length):
    done = libc.connect(descriptor, place, length)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "done"
local = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s", port, bytes((127, 0, 0, 1)))
bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind(("", port))
both = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
memory = ctypes.create_string_buffer(local + bytes(8) + b"untouched")
print(json.dumps({
    "bad place": connect(bound.fileno(), ctypes.c_void_p(-1), 16),
    "no socket": {connect(os.pipe()[0], memory, 16) for _ in range(400)}.pop(),
    "other family": connect(both.fileno(), memory, 16),
    "behind it": memory.raw[16:25].decode(),
    "then": socket.create_server(("", port)).getsockname()[0],
}))
"""


def hold(directory: str, mark: str) -> None:
    """Put something into the place of a mark that cannot be opened: nothing reads it."""
    ports = Path(directory, "ports")
    ports.mkdir()
    os.mkfifo(ports / mark)


@pytest.mark.skipif(not is_supported(), reason="the kernel has no such filter")
async def test_odd_calls_harm_neither_program_nor_supervisor(runtime: ProcessRuntime) -> None:
    sandbox = await prepared(runtime, "a")
    port = free_port()
    hold(sandbox.directory, f"{int(socket.SOCK_STREAM)}-{port}")
    target = await start(runtime, "a", sys.executable, "-c", ODD_CALLS, str(port))
    assert json.loads(await output(runtime, target)) == {
        "bad place": "EFAULT",
        "no socket": "ENOTSOCK",
        "other family": "done",
        "behind it": "untouched",
        "then": sandbox.address,
    }


@pytest.mark.skipif(not is_supported(), reason="the kernel has no such filter")
async def test_what_a_command_leaves_may_bind(runtime: ProcessRuntime, clock: Clock) -> None:
    address = (await prepared(runtime, "a")).address
    target = await start(runtime, "a", "sleep", "600")
    port = free_port()
    serve = f"sleep 1; exec {sys.executable} -m http.server {port}"
    command = ("sh", "-c", f"setsid sh -c '({serve}) > /dev/null 2>&1 &'")
    assert (await runtime.run(target, command, LIMIT_S)).exit_code == 0
    if runtime.isolation == "namespaces":  # elsewhere nothing is left
        assert b"200 OK" in await until_answered(address, port, clock)
    await runtime.signal(target, signal.SIGKILL)
    await end_of(runtime, target, clock)


@pytest.mark.skipif(not is_supported(), reason="the kernel has no such filter")
@pytest.mark.parametrize("isolation", ["none", "auto"])
async def test_commands_find_localhost_after_a_take_over(
    tmp_path: Path, clock: Clock, log: Logger, isolation: str
) -> None:
    config = ProcessConfig(tmp_path, isolation=isolation, programs_network="auto")
    offload = Threads("runtime", 2)
    port = free_port()
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as first:
        address = (await prepared(first, "a")).address
        target = await start(first, "a", sys.executable, "-m", "http.server", str(port))
        await until_answered(address, port, clock)
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as second:
        found = await second.run(
            target, (sys.executable, "-c", CONNECTS, str(port), str(port), str(port)), LIMIT_S
        )
        assert json.loads(found.output)["localhost"] == address
        await second.remove("uid-a")
    offload.close()
    assert marked(tmp_path) == []


NESTED = """
import contextlib, os
from grange.agent.runtimes.process import bind_filter
with contextlib.suppress(OSError):
    os.close(bind_filter.install())
print(bind_filter.probe())
"""


def test_probe_fails_inside_a_filter() -> None:
    """As in a pod of another control plane."""
    done = subprocess.run(
        [sys.executable, "-c", NESTED], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) != 0
