"""What the proxy of Services adds: connections, round trips and bytes, compared with the pod's address.

Program, proxy and client are on this computer, and the client takes what it gets at once.
"""

import copy
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import peers
from bench.agents import LIMIT_S, POD, SERVICE, STREAM_BYTES, Api, received, until_reached
from bench.startup import cpu_s, free_port, grange, until_ready

ROUNDS = 1000
BATCHES = 5
"""Either way in turn, so that other work on the machine meets both."""


def round_trips(address: tuple[str, int], count: int) -> list[float]:
    """Seconds of each request for one byte over one connection."""
    times = []
    with socket.create_connection(address, timeout=LIMIT_S) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            started = time.perf_counter()
            end.sendall(b"1\n")
            end.recv(1)
            times.append(time.perf_counter() - started)
    return times


def added_ms(
    measured: Callable[[tuple[str, int]], list[float]],
    proxied: tuple[str, int],
    direct: tuple[str, int],
) -> float:
    """How much longer the median is through the proxy."""
    times: dict[tuple[str, int], list[float]] = {proxied: [], direct: []}
    for _ in range(BATCHES):
        for address in times:
            times[address] += measured(address)
    return 1000 * (statistics.median(times[proxied]) - statistics.median(times[direct]))


def measure() -> dict[str, float]:
    """One run."""
    directory = Path(tempfile.mkdtemp(prefix="grange-bench-"))
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    server = subprocess.Popen(
        grange("up", "--data-dir", str(directory), "--listen", f"127.0.0.1:{port}", "--no-switch"),
        stdout=subprocess.DEVNULL,
    )
    try:
        until_ready(url)
        api = Api(url, directory)
        pod = copy.deepcopy(POD)
        del pod["spec"]["nodeName"]
        api.ask("/api/v1/namespaces/default/services", SERVICE)
        api.ask("/api/v1/namespaces/default/pods", pod)
        api.until_condition("/api/v1/namespaces/default/pods/far")
        found = api.ask("/api/v1/namespaces/default/pods/far")
        service = api.ask("/api/v1/namespaces/default/services/far")
        direct = str(found["status"]["podIP"]), 8080
        proxied = str(service["spec"]["clusterIP"]), 80
        until_reached(proxied)
        time.sleep(2.0)  # the control plane is at rest
        batch = ROUNDS // BATCHES
        result = {
            "added_round_trip_ms": added_ms(lambda end: round_trips(end, batch), proxied, direct),
            "added_connection_ms": added_ms(
                lambda end: [received(end, 1) for _ in range(batch)], proxied, direct
            ),
        }
        before = cpu_s(server.pid)
        for _ in range(ROUNDS):
            received(proxied, 1)
        result["connection_cpu_us"] = 1e6 * (cpu_s(server.pid) - before) / ROUNDS
        before = cpu_s(server.pid)
        result["proxied_gbit"] = STREAM_BYTES * 8e-9 / received(proxied, STREAM_BYTES)
        result["gigabyte_cpu_s"] = (cpu_s(server.pid) - before) / (STREAM_BYTES / 1e9)
        result["direct_gbit"] = STREAM_BYTES * 8e-9 / received(direct, STREAM_BYTES)
        return result | peers.measure(api, server.pid)
    finally:
        server.terminate()
        server.wait(LIMIT_S)
        shutil.rmtree(directory, ignore_errors=True)
