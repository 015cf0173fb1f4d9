"""Pod creates a second over HTTPS with two watchers, and how late the watchers receive them.

Three processes, as they would be: this one asks and reports; the server with a SQLite store on a
real directory; the load, which holds 32 connections in closed loop and both watches on plain
non-blocking TLS sockets, because a comfortable client would be the bottleneck.

Alone: ``python -m bench.apiserver``; ``--profile FILE`` writes a profile of the server.
"""

import asyncio
import cProfile
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

CONNECTIONS = 32
WATCHERS = 2
PODS = 15_000
WARM_UP = 1_000  # the first ones compile schemas and fill caches

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "NAME",
        "namespace": "default",
        "labels": {"app": "bench", "tier": "backend", "release": "stable"},
        "annotations": {"example.com/owner": "team-bench", "example.com/purpose": "load"},
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/app:1.2.3",
                "command": ["/usr/bin/app", "--listen", ":8080", "--log-level", "info"],
                "env": [
                    {"name": "MODE", "value": "production"},
                    {"name": "REGION", "value": "north"},
                    {
                        "name": "POD_NAME",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                    },
                ],
                "ports": [{"name": "http", "containerPort": 8080}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi"},
                },
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
            }
        ],
        "nodeSelector": {"example.com/pool": "bench"},
        "terminationGracePeriodSeconds": 5,
    },
}


# --- the server's process ----------------------------------------------------------------------


async def serve(directory: Path) -> None:
    """Serve until SIGTERM."""
    from grange.api.http import ADMIN
    from grange.api.kinds import BUILT_IN
    from grange.api.scheme import Scheme
    from grange.apiserver.application import Application
    from grange.apiserver.authn import StaticTokens
    from grange.apiserver.listener import Listener
    from grange.app import certificates
    from grange.base.clock import LoopClock
    from grange.base.log import Logger
    from grange.base.rng import Stream
    from grange.store.sqlite import SQLiteStore

    clock, log = LoopClock(), Logger("bench")
    keys = certificates.ensure(directory / "pki", names=("127.0.0.1",), now=clock.now())
    store = await SQLiteStore.open(directory / "store", log=log)
    application = Application(
        store, Scheme(BUILT_IN), clock=clock, rng=Stream.from_system(), log=log
    )
    await application.bootstrap()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Listener(
        application.handle,
        authenticator=StaticTokens({keys.token: ADMIN}),
        ssl_context=keys.server_context(),
        clock=clock,
        log=log,
        drain=application.end_streams,
    ) as listener:
        ready = {"port": listener.port, "token": keys.token, "ca": keys.ca_pem.decode()}
        print(json.dumps(ready), flush=True)
        await stop.wait()
    await store.close()


def run_server(directory: Path, profile: str) -> None:
    import uvloop

    from grange.app import gc_tuning

    gc_tuning.tune()  # as ``grange up`` does
    if not profile:
        uvloop.run(serve(directory))
        return
    profiler = cProfile.Profile()
    profiler.enable()
    uvloop.run(serve(directory))
    profiler.disable()
    profiler.dump_stats(profile)


# --- the load's process ------------------------------------------------------------------------


def connect(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secured = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secured.settimeout(0)
    return secured


def receive(sock: ssl.SSLSocket) -> bytes:
    """Everything that is there now."""
    parts: list[bytes] = []
    while True:
        try:
            part = sock.recv(262_144)
        except ssl.SSLWantReadError:
            return b"".join(parts)
        if not part:
            raise SystemExit("the server closed a connection")
        parts.append(part)


@dataclass
class Load:
    """The state of a run."""

    port: int
    token: str
    context: ssl.SSLContext
    sent: dict[bytes, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    received: int = 0
    first: int = 0

    def post(self, sock: ssl.SSLSocket, number: int, body: bytes) -> None:
        name = b"p-%06d" % number
        body = body.replace(b"NAME", name, 1)
        head = (
            b"POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer %b\r\nContent-Type: application/json\r\n"
            b"Accept: application/json\r\nContent-Length: %d\r\n\r\n"
            % (self.token.encode(), len(body))
        )
        self.sent[name] = time.perf_counter()
        sock.sendall(head + body)

    def watch(self) -> ssl.SSLSocket:
        sock = connect(self.port, self.context)
        sock.settimeout(None)
        sock.sendall(
            b"GET /api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=true HTTP/1.1\r\n"
            b"Host: localhost\r\nAuthorization: Bearer %b\r\nAccept: application/json\r\n\r\n"
            % self.token.encode()
        )
        sock.settimeout(0)
        return sock

    def receive(self, sock: ssl.SSLSocket, rest: bytes) -> bytes:
        """Note when the watcher got each pod; returns the incomplete line."""
        data = rest + receive(sock)
        now = time.perf_counter()
        *lines, rest = data.split(b"\n")
        for line in lines:
            at = line.find(b'"name":"p-')
            if at >= 0 and int(line[at + 10 : at + 16]) >= self.first:
                self.received += 1
                self.latencies.append(now - self.sent[line[at + 8 : at + 16]])
        return rest


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_load(port: int, token: str, ca: str, server: int) -> dict[str, float]:
    context = ssl.create_default_context(cadata=ca)
    load = Load(port, token, context)
    body = json.dumps(POD).encode()
    warm(load, body)
    load.latencies.clear()
    load.received = 0
    started, used = time.perf_counter(), cpu_s(server)
    finished = drive(load, body, WARM_UP, WARM_UP + PODS)
    latencies = sorted(load.latencies)
    return {
        "creates_per_s": PODS / (finished - started),
        "watch_p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "watch_p50_ms": latencies[len(latencies) // 2] * 1000,
        "server_cpu_us_per_create": (cpu_s(server) - used) / PODS * 1e6,
    }


def warm(load: Load, body: bytes) -> None:
    drive(load, body, 0, WARM_UP)


def drive(load: Load, body: bytes, first: int, last: int) -> float:
    """Create pods in closed loop; returns when the last answer came; waits for the watchers too."""
    load.first = first  # what earlier rounds made comes as the state to begin with
    sockets = [connect(load.port, load.context) for _ in range(CONNECTIONS)]
    watchers = {sock.fileno(): sock for sock in (load.watch() for _ in range(WATCHERS))}
    rest = dict.fromkeys(watchers, b"")
    posters = {sock.fileno(): sock for sock in sockets}
    poll = select.epoll()
    for number in (*posters, *watchers):
        poll.register(number, select.EPOLLIN)
    following, answered, finished = first, 0, 0.0
    wanted = load.received + WATCHERS * (last - first)
    for sock in sockets:
        load.post(sock, following, body)
        following += 1
    total, partial = last - first, dict.fromkeys(posters, b"")
    while answered < total or load.received < wanted:
        for number, _ in poll.poll():
            if number in watchers:
                rest[number] = load.receive(watchers[number], rest[number])
                continue
            answer = partial[number] + receive(posters[number])
            if not complete(answer):
                partial[number] = answer
                continue
            partial[number] = b""
            answered += 1
            if answered == total:
                finished = time.perf_counter()
            if following < last:
                load.post(posters[number], following, body)
                following += 1
    poll.close()
    for sock in (*posters.values(), *watchers.values()):
        sock.close()
    return finished


def complete(answer: bytes) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    if not answer.startswith(b"HTTP/1.1 201"):
        raise SystemExit(f"unexpected answer: {answer[:500]!r}")
    at = answer.index(b"Content-Length: ") + 16
    return len(answer) >= end + 4 + int(answer[at : answer.index(b"\r", at)])


# --- the measuring process ---------------------------------------------------------------------


def measure(profile: str = "") -> dict[str, float]:
    """Pod creates a second and watch latency."""
    with tempfile.TemporaryDirectory(prefix="grange-bench-") as directory:
        here = [sys.executable, "-m", "bench.apiserver"]
        server = subprocess.Popen([*here, "server", directory, profile], stdout=subprocess.PIPE)
        try:
            ready = json.loads(server.stdout.readline() if server.stdout else b"")
            done = subprocess.run(
                [*here, "load", str(ready["port"]), ready["token"], ready["ca"], str(server.pid)],
                check=True,
                capture_output=True,
                timeout=300,
            )
        finally:
            server.terminate()
            server.wait(timeout=30)
            if server.stdout:
                server.stdout.close()
        result: dict[str, float] = json.loads(done.stdout)
        return result


def main(arguments: list[str]) -> None:
    match arguments:
        case ["server", directory, profile]:
            run_server(Path(directory), profile)
        case ["load", port, token, ca, server]:
            print(json.dumps(run_load(int(port), token, ca, int(server))))
        case ["--profile", file]:
            print(measure(file))
        case _:
            print(measure())


if __name__ == "__main__":
    main(sys.argv[1:])
