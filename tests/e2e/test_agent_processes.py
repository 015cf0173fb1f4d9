"""The agent over real processes: what a pod's program sees, and what is seen of it."""

import asyncio
import os
import resource
import socket
import ssl
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings, strategies as st

from grange.agent import grpc_health
from grange.agent.config import NodeConfig
from grange.agent.container_runtime import ContainerID, LogQuery, PodSetup, Program
from grange.agent.probe_answer import ProbeTarget
from grange.agent.prober import SystemProber
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.agent.service import NodeAgent
from grange.api.http import ADMIN
from grange.api.kinds import BUILT_IN, CONFIGMAP, POD, SECRET
from grange.api.kinds.pod import Container, Pod, Probe, condition
from grange.api.scheme import Scheme
from grange.api.status import NotFound
from grange.apiserver.application import Application
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.offload import Threads
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.store.memory import MemoryStore

pytestmark = pytest.mark.e2e

LIMIT_S = 240.0
ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()
    def log_message(self, *rest): pass
http.server.HTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""


class Bench:
    """An API server in memory and an agent over real processes."""

    def __init__(self, clock: Clock, rng: Stream, log: Logger, data_dir: Path) -> None:
        self.clock, self.rng, self.log, self.data_dir = clock, rng, log, data_dir
        application = Application(
            MemoryStore(), Scheme(BUILT_IN), clock=clock, rng=rng, log=log, authn=None
        )
        self.application = application
        self.client = Client(InProcess(application.handle, ADMIN), clock=clock)

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[ProcessRuntime]:
        """An agent that ends with the block, without a word, as in a crash."""
        offload = Threads("bench", 2)
        runtime = ProcessRuntime(
            ProcessConfig(self.data_dir), clock=self.clock, log=self.log, offload=offload
        )
        informers = InformerFactory(self.client, clock=self.clock, rng=self.rng, log=self.log)
        deps = Deps(self.client, informers, self.clock, self.rng, self.log, registry())
        config = NodeConfig("node-1", {"cpu": "8", "memory": "8Gi", "pods": "110"}, environment=ENV)
        try:
            async with runtime, Nursery("bench") as nursery:
                nursery.start(informers.run())
                nursery.start(NodeAgent(deps, config, runtime).run())
                yield runtime
                nursery.cancel()
        finally:
            offload.close()

    async def create(self, name: str, script: str, *, program: Any = None, **spec: Any) -> None:
        main = {"name": "main", "command": program or ["sh", "-c", script]}
        main |= spec.pop("container", {})
        body = {"nodeName": "node-1", "containers": [main], **spec}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}
        await self.client.create(POD, document, "default")

    async def pod(self, name: str) -> Pod:
        return await self.client.get(POD, name, "default")

    async def until(self, name: str, test: Callable[[Pod], bool]) -> Pod:
        async with self.clock.timeout(LIMIT_S):
            while not test(pod := await self.pod(name)):
                await self.clock.sleep(0.01)
        return pod

    async def ready(self, name: str) -> Pod:
        return await self.until(
            name,
            lambda pod: (found := condition(pod, "Ready")) is not None and found.status == "True",
        )

    async def delete(self, name: str, grace_period_s: int = 1) -> None:
        await self.client.delete(POD, name, "default", grace_period_s=grace_period_s)
        async with self.clock.timeout(LIMIT_S):
            while await self._exists(name):
                await self.clock.sleep(0.01)

    async def _exists(self, name: str) -> bool:
        try:
            await self.pod(name)
        except NotFound:
            return False
        return True

    async def log_of(self, runtime: ProcessRuntime, pod: Pod, attempt: int = 0) -> str:
        target = ContainerID(pod.metadata.uid, "main", attempt)
        return b"".join([x async for x in runtime.logs.read(target, LogQuery())]).decode()


@pytest.fixture
async def bench(clock: Clock, rng: Stream, tmp_path: Path) -> Bench:
    made = Bench(clock, rng, Logger("bench"), tmp_path)
    await made.application.bootstrap()
    return made


async def test_two_servers_share_a_port_at_their_own_addresses(bench: Bench) -> None:
    probe = {"readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}}}
    async with bench.agent() as runtime:
        for name in ("one", "two"):
            program = [sys.executable, "-c", SERVER]
            await bench.create(name, "", program=program, container=probe)
        one, two = await bench.ready("one"), await bench.ready("two")
        assert one.status.pod_ip != two.status.pod_ip
        await bench.delete("one")
        await bench.delete("two")
        assert runtime.pods() == []


async def test_config_maps_and_secrets_are_files(bench: Bench, tmp_path: Path) -> None:
    await bench.client.create(
        CONFIGMAP, {"metadata": {"name": "cfg"}, "data": {"app.conf": "colour=green"}}, "default"
    )
    await bench.client.create(
        SECRET, {"metadata": {"name": "sec"}, "stringData": {"key": "hush"}}, "default"
    )
    script = (
        "cat etc/app/app.conf; echo; cat $GRANGE_ROOT/keys/key; echo; "
        'cat "$GRANGE_VOLUME_SETTINGS/app.conf"; echo; touch data/mine; ls "$GRANGE_VOLUME_DATA"; '
        "stat -L -c %a keys/key; pwd; echo $HOME; sleep 600"
    )
    await bench.create(
        "web",
        script,
        volumes=[
            {"name": "settings", "configMap": {"name": "cfg"}},
            {"name": "keys", "secret": {"secretName": "sec", "defaultMode": 0o400}},
            {"name": "data", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": str(tmp_path)}},
        ],
        container={
            "volumeMounts": [
                {"name": "settings", "mountPath": "/etc/app"},
                {"name": "keys", "mountPath": "keys"},
                {"name": "data", "mountPath": "/data"},
                {"name": "host", "mountPath": "/host"},
            ]
        },
    )
    (tmp_path / "precious").write_text("mine")
    async with bench.agent() as runtime:
        pod = await bench.ready("web")
        async with bench.clock.timeout(LIMIT_S):
            while len((reported := await bench.log_of(runtime, pod)).splitlines()) < 7:
                await bench.clock.sleep(0.02)
        root = str(runtime.pods()[0].sandbox.root("main"))
        assert reported.split() == [
            "colour=green", "hush", "colour=green", "mine", "400", root, root,
        ]  # fmt: skip
        await bench.delete("web")
    # Deleting the pod follows no link out of its directory.
    assert (tmp_path / "precious").read_text() == "mine"


async def test_volumes_outlive_a_restart_and_the_root_does_not(bench: Bench) -> None:
    script = "ls; ls data; touch here data/there; sleep 0.2; exit 1"
    await bench.create(
        "web",
        script,
        volumes=[{"name": "data", "emptyDir": {}}],
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    )
    async with bench.agent() as runtime:
        pod = await bench.until(
            "web", lambda pod: any(x.restart_count >= 1 for x in pod.status.container_statuses)
        )
        async with bench.clock.timeout(LIMIT_S):
            while len((reported := await bench.log_of(runtime, pod, 1)).split()) < 4:
                await bench.clock.sleep(0.02)
        # ``dev`` has the place of the termination message, ``var`` leads to the token of the service
        # account; ``here`` is gone.
        assert reported.split() == ["data", "dev", "var", "there"]
        await bench.delete("web")


async def test_a_command_that_is_not_found_is_named_on_the_pod(bench: Bench) -> None:
    await bench.create("web", "", program=["no-such-program"], restartPolicy="Never")
    async with bench.agent():
        pod = await bench.until("web", lambda pod: pod.status.phase == "Failed")
        ended = pod.status.container_statuses[0].state.terminated
        assert ended is not None
        assert (ended.reason, ended.exit_code) == ("StartError", 127)
        assert 'program "no-such-program" not found in PATH=' in ended.message
        await bench.client.delete(POD, "web", "default")


async def test_a_command_probe_sees_the_container_s_place(bench: Bench) -> None:
    probe = {"exec": {"command": ["sh", "-c", 'test -e up && test "$GREETING" = hello']}}
    await bench.create(
        "web",
        "sleep 0.3; touch up; sleep 600",
        container={
            "readinessProbe": probe,
            "env": [{"name": "GREETING", "value": "hello"}],
        },
    )
    async with bench.agent():
        await bench.ready("web")
        await bench.delete("web")


async def test_the_next_agent_takes_over_real_processes(bench: Bench) -> None:
    await bench.create("web", "while :; do echo tick; sleep 0.02; done")
    async with bench.agent() as runtime:
        pod = await bench.ready("web")
        first = runtime.pods()[0].runs[-1]
    async with bench.agent() as runtime:
        async with bench.clock.timeout(LIMIT_S):
            while not runtime.pods():
                await bench.clock.sleep(0.01)
        again = runtime.pods()[0].runs
        assert [(run.id, run.pid, run.running) for run in again] == [(first.id, first.pid, True)]
        await bench.clock.sleep(0.3)
        now = await bench.pod("web")
        assert now.status.container_statuses == pod.status.container_statuses
        os.kill(first.pid, 9)
        await bench.until(
            "web", lambda pod: [x.restart_count for x in pod.status.container_statuses] == [1]
        )
        await bench.delete("web")


async def test_a_pod_that_was_deleted_meanwhile_is_ended(bench: Bench) -> None:
    await bench.create("web", "trap '' TERM; while :; do sleep 0.05; done")
    async with bench.agent():
        await bench.ready("web")
    await bench.client.delete(POD, "web", "default", grace_period_s=0)
    async with bench.agent() as runtime:
        assert len(runtime.pods()) == 1
        async with bench.clock.timeout(LIMIT_S):
            while runtime.pods():
                await bench.clock.sleep(0.02)


async def test_hooks_run_beside_the_program(bench: Bench) -> None:
    order = bench.data_dir / "order"
    script = f"trap 'echo stopped >> {order}; exit 0' TERM; while :; do sleep 0.05; done"

    def hook(word: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", f"echo {word} $POD_NAME >> {order}"]}}

    hooks = {"lifecycle": {"postStart": hook("warm"), "preStop": hook("drain")}}
    async with bench.agent():
        await bench.create("web", script, container=hooks)
        await bench.ready("web")
        assert order.read_text() == "warm web\n"
        await bench.delete("web", grace_period_s=60)  # all that it is given for hook and program
    assert order.read_text() == "warm web\ndrain web\nstopped\n"


async def test_replicas_on_one_port_name_each_other(bench: Bench) -> None:
    serve = "import http.server as s; s.HTTPServer(('0.0.0.0', {port}), s.BaseHTTPRequestHandler)"
    with socket.create_server(("127.0.0.1", 0)) as probing:
        port = probing.getsockname()[1]
    program = [sys.executable, "-c", f"{serve.format(port=port)}.serve_forever()"]
    ready = {"readinessProbe": {"tcpSocket": {"port": port}}}
    async with bench.agent():
        await bench.create("one", "", program=program, container=ready)
        await bench.ready("one")
        await bench.create("two", "", program=program, restartPolicy="Never")
        pod = await bench.until("two", lambda pod: pod.status.phase == "Failed")
        ended = pod.status.container_statuses[0].state.terminated
        assert ended is not None
        assert f"port {port} is held by pod default/one, which listens on 0.0.0.0" in ended.message
        assert "$(POD_IP)" in ended.message
        for name in ("one", "two"):  # a container that is only removed is started again
            await bench.delete(name)


# --- the prober ------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on 127.0.0.1 that answers everybody the same."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def prober(clock: Clock, tmp_path: Path) -> AsyncGenerator[SystemProber, None]:
    offload = Threads("bench")
    runtime = ProcessRuntime(
        ProcessConfig(tmp_path), clock=clock, log=Logger("bench"), offload=offload
    )
    async with runtime:
        await runtime.prepare(PodSetup("uid", "default", "web", "node-1"))
        sleeper = Program(("sleep", "600"), ENV)
        await runtime.start(ContainerID("uid", "main", 0), sleeper, ())
        yield SystemProber(runtime, clock)
        await runtime.remove("uid")
    offload.close()


def target(**container: Any) -> ProbeTarget:
    view = msgspec.convert({"name": "main", **container}, Container)
    return ProbeTarget("127.0.0.1", view, ContainerID("uid", "main", 0))


def probe(**fields: Any) -> Probe:
    """One whose answer a busy machine has time for, unless it has its own limit."""
    return msgspec.convert({"timeoutSeconds": 60, **fields}, Probe)


async def test_http_probes(prober: SystemProber) -> None:
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n") as port:
        named = target(ports=[{"name": "http", "containerPort": port}])
        assert (await prober.ask(probe(httpGet={"port": "http"}), named)).ok
    async with serving(b"HTTP/1.1 503 Busy\r\n\r\n") as port:
        answer = await prober.ask(probe(httpGet={"port": port}), target())
        assert (answer.ok, answer.message) == (False, "HTTP status 503")
    async with serving(b"x" * 100_000) as port:
        assert not (await prober.ask(probe(httpGet={"port": port}), target())).ok


async def test_grpc_probes(prober: SystemProber) -> None:
    settings, headers = grpc_health.frame(4, 0, 0), grpc_health.frame(1, 4, 1, b"\x88")
    for status, ok in ((1, True), (2, False)):
        message = grpc_health.frame(0, 0, 1, b"\0\0\0\0\2\x08" + bytes([status]))
        async with serving(settings + headers + message) as port:
            answer = await prober.ask(probe(grpc={"port": port, "service": "shop"}), target())
            assert (answer.ok, "SERVING" in answer.message) == (ok, True)
    for nonsense in NASTY_ANSWERS:
        async with serving(nonsense) as port:
            answer = await prober.ask(probe(grpc={"port": port}), target())
            assert (answer.ok, bool(answer.message)) == (False, True)


NASTY_ANSWERS = [
    b"HTTP/1.1 " + b"1" * 5000 + b"\r\n\r\n",
    b"HTTP/1.1 \xb2\xb2\xb2 x\r\n\r\n",
    b"HTTP/1.1  \r\n",
    b"\0" * 20_000,
    b"",
]


@pytest.mark.parametrize("answer", NASTY_ANSWERS)
async def test_no_answer_of_a_program_ends_its_probe(prober: SystemProber, answer: bytes) -> None:
    async with serving(answer) as port:
        found = await prober.ask(probe(httpGet={"port": port}), target())
        assert (found.ok, bool(found.message)) == (False, True)


HOSTS = ["a..b", "x" * 64 + ".example", "\0", "127.0.0.1\r\nx", "[::1", "\u2024.", "%"]
PORTS = [-1, 0, 65536, 2**70, "9" * 5000, "\u00b2", "", "nothing"]


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
async def test_no_probe_of_a_manifest_ends_its_worker(prober: SystemProber, kind: str) -> None:
    actions = [{"host": host, "port": 80} for host in HOSTS] + [{"port": port} for port in PORTS]
    for action in actions:
        found = await prober.ask(probe(**{kind: action}), target())
        assert (found.ok, bool(found.message)) == (False, True)


# Nothing listens on port 1, and no host is one that could be looked up.
PLACES = {"port": st.sampled_from([1, *PORTS]) | st.text(max_size=6, alphabet="\u00b9x-+ _")}
FIELDS = {
    "host": st.sampled_from(["127.0.0.1", *HOSTS]),
    "path": st.text(max_size=20),
    "scheme": st.sampled_from(["HTTP", "HTTPS", "https", "", "FTP"]),
    "httpHeaders": st.lists(
        st.dictionaries(st.sampled_from(["name", "value", "other"]), st.text(max_size=10)),
        max_size=3,
    ),
}
ACTIONS = st.fixed_dictionaries(PLACES, optional=FIELDS)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "httpGet": ACTIONS,
        "tcpSocket": ACTIONS,
        "exec": st.fixed_dictionaries({"command": st.lists(st.text(max_size=5), max_size=2)}),
        "grpc": st.fixed_dictionaries(
            {"port": st.sampled_from([-1, 0, 1, 65536, 2**70])},
            optional={"service": st.text(max_size=300)},
        ),
        "timeoutSeconds": st.sampled_from([-1, 0, 1, 2**40]),
    },
)


@given(SPECS)
@settings(max_examples=150, deadline=None)
def test_every_probe_spec_has_an_answer(fields: dict[str, Any]) -> None:
    """Whatever is in a manifest: nothing passes, and nothing ends the worker that asks."""

    async def ask() -> None:
        clock = LoopClock()
        prober = SystemProber(FakeRuntime(FakeMachine(), clock), clock)
        found = await prober.ask(probe(**fields), target())
        assert (bool(found.ok), bool(found.message)) == (False, True)

    asyncio.run(ask())


async def test_probe_without_descriptors_is_no_failure(prober: SystemProber) -> None:
    """What the agent lacks is no failure of the container."""
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n") as port:
        probes = [
            probe(httpGet={"port": port}),
            probe(tcpSocket={"port": port}),
            probe(exec={"command": ["true"]}),
        ]
        free = os.dup(0)  # the lowest number that is not in use
        os.close(free)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            found = [await prober.ask(item, target()) for item in probes]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert [item.ok for item in found] == [None, None, None]
        assert all("Too many open files" in item.message for item in found)
        assert all([(await prober.ask(item, target())).ok for item in probes])


async def test_https_probes_do_not_ask_for_a_name(prober: SystemProber, tmp_path: Path) -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n", self_signed(tmp_path)) as port:
        answer = await prober.ask(probe(httpGet={"port": port, "scheme": "HTTPS"}), target())
        assert answer.ok, answer.message


def self_signed(directory: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "another user")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.chmod(stat.S_IRUSR)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


async def test_tcp_probes_and_refused_connections(prober: SystemProber) -> None:
    async with serving(b"") as port:
        assert (await prober.ask(probe(tcpSocket={"port": port}), target())).ok
    answer = await prober.ask(probe(tcpSocket={"port": port}), target())
    assert not answer.ok
    assert f"connection refused at 127.0.0.1:{port}" in answer.message
    assert "$POD_IP" in answer.message


async def test_a_silent_server_is_not_waited_for(prober: SystemProber) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answer = await prober.ask(probe(httpGet={"port": port}, timeoutSeconds=1), target())
    assert (answer.ok, answer.message) == (False, "no answer within 1s")
    server.close()
    await server.wait_closed()


async def test_command_probes(prober: SystemProber) -> None:
    yes = await prober.ask(probe(exec={"command": ["true"]}), target())
    assert yes.ok
    no = await prober.ask(probe(exec={"command": ["sh", "-c", "echo sick; exit 2"]}), target())
    assert (no.ok, no.message) == (False, "command exited with 2: sick")
    missing = await prober.ask(probe(exec={"command": ["no-such-program"]}), target())
    assert "no-such-program" in missing.message
    slow = await prober.ask(probe(exec={"command": ["sleep", "9"]}, timeoutSeconds=1), target())
    assert (slow.ok, slow.message) == (False, "command took longer than 1s")


async def test_questions_that_make_no_sense_are_answered(prober: SystemProber) -> None:
    for odd, expected in (
        ({}, "none of exec, httpGet, tcpSocket, grpc"),
        ({"exec": {"command": []}}, "no command"),
        ({"httpGet": {"port": "nameless"}}, 'no port named "nameless"'),
        ({"tcpSocket": {"port": "nameless"}}, 'no port named "nameless"'),
    ):
        answer = await prober.ask(probe(**odd), target())
        assert not answer.ok
        assert expected in answer.message
