"""Pods as processes: how soon one runs, what many of them cost, with and without isolation.

A watch has the times: they are of what any client sees. Pods name their node, so that no scheduler
takes part.
"""

import http.client
import json
import shutil
import ssl
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.agents import Api
from bench.startup import cpu_s, free_port, grange, until_ready

STARTS = 100
MANY = 500
NODES = 5  # of one process: a node takes 110 pods
IDLE_S = 20.0
LIMIT_S = 300.0
PODS = "/api/v1/namespaces/default/pods"
SETTINGS = {
    "": ("--isolation", "none", "--network", "shared"),
    "isolated_": ("--isolation", "auto", "--network", "addresses"),
}


def pod(name: str, node: str) -> dict[str, Any]:
    """A pod that does nothing."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "command": ["sleep", "infinity"]}],
        },
    }


class PodWatch:
    """When pods came to run, and which there are.

    Args:
        url: of the API server.
        directory: of its data.
    """

    def __init__(self, url: str, directory: Path) -> None:
        context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        host, _, port = url.removeprefix("https://").partition(":")
        self._connection = http.client.HTTPSConnection(host, int(port), context=context)
        token = (directory / "pki" / "token").read_text().strip()
        self._connection.request(
            "GET", f"{PODS}?watch=true", headers={"Authorization": f"Bearer {token}"}
        )
        self._answer = self._connection.getresponse()
        self._changed = threading.Condition()
        self._running: dict[str, float] = {}
        self._there: set[str] = set()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while line := self._answer.readline():
                self._note(json.loads(line), time.perf_counter())
        except (OSError, ValueError, AttributeError):
            return  # closed

    def _note(self, event: dict[str, Any], now: float) -> None:
        found = event["object"]
        name = found["metadata"]["name"]
        with self._changed:
            self._there.add(name)
            if event["type"] == "DELETED":
                self._there.discard(name)
            elif found.get("status", {}).get("phase") == "Running":
                self._running.setdefault(name, now)
            self._changed.notify_all()

    def running_at(self, name: str) -> float:
        """When it came to run; waits for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._running, LIMIT_S):
                raise TimeoutError(f"{name} does not run")
            return self._running[name]

    def wait_until_gone(self) -> None:
        """Wait until there are no pods."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._there, LIMIT_S):
                raise TimeoutError(f"{len(self._there)} pods are left")


def descendants(pid: int) -> list[int]:
    """All processes below one, itself included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def total_cpu_s(pids: list[int]) -> float:
    """Processor seconds of processes that run."""
    return sum(cpu_s(pid) for pid in pids)


def memory_mb(pids: list[int]) -> float:
    """Memory of processes; what they share is counted once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


@contextmanager
def plane(*words: str) -> Iterator[tuple[Api, PodWatch, int, list[str]]]:
    """A control plane: client, watch, process id, names of the nodes."""
    directory = Path(tempfile.mkdtemp(prefix="grange-bench-"))
    data, port = directory / "data", free_port()
    url = f"https://127.0.0.1:{port}"
    server = subprocess.Popen(
        grange(
            *("up", "--data-dir", str(data), "--listen", f"127.0.0.1:{port}", "--no-switch"),
            *("--cri-socket", "none", "--eviction-hard", "none", "--nodes", str(NODES), *words),
        ),
        stdout=subprocess.DEVNULL,
    )
    try:
        until_ready(url)
        api = Api(url, data)
        while len(nodes := api.ask("/api/v1/nodes")["items"]) < NODES:
            time.sleep(0.01)
        names = [node["metadata"]["name"] for node in nodes]
        for name in names:
            api.until_condition(f"/api/v1/nodes/{name}")
        yield api, PodWatch(url, data), server.pid, names
    finally:
        server.terminate()
        server.wait(LIMIT_S)
        shutil.rmtree(directory, ignore_errors=True)


def measure_one(prefix: str, words: tuple[str, ...]) -> dict[str, float]:
    """The figures of one setting."""
    with plane(*words) as (api, watch, server, nodes):

        def start(name: str, number: int = 0) -> float:
            at = time.perf_counter()
            api.ask(PODS, pod(name, nodes[number % NODES]))
            return at

        for number in range(5):
            start(f"warm-{number}")
            watch.running_at(f"warm-{number}")
        before = total_cpu_s(descendants(server))
        times = []
        for number in range(STARTS):
            at = start(f"one-{number}")
            times.append(1000 * (watch.running_at(f"one-{number}") - at))
        cpu = total_cpu_s(descendants(server)) - before
        quantiles = statistics.quantiles(times, n=100)
        result = {
            "start_ms": statistics.median(times),
            "start_p99_ms": quantiles[-1],
            "start_cpu_ms": 1000 * cpu / STARTS,
        }
        api.ask(PODS, method="DELETE")
        watch.wait_until_gone()
        pids = descendants(server)
        empty, before = memory_mb(pids), total_cpu_s(pids)
        at = time.perf_counter()
        for number in range(MANY):
            start(f"many-{number}", number)
        last = max(watch.running_at(f"many-{number}") for number in range(MANY))
        pids = descendants(server)
        result["many_s"] = last - at
        result["many_cpu_s"] = total_cpu_s(pids) - before
        time.sleep(5.0)  # what follows the start is over
        result["pod_mb"] = (memory_mb(pids) - empty) / MANY
        at, before = time.perf_counter(), total_cpu_s(pids)
        time.sleep(IDLE_S)
        result["idle_cpu_percent"] = 100 * (total_cpu_s(pids) - before) / (time.perf_counter() - at)
        api.ask(PODS, method="DELETE")
        watch.wait_until_gone()
    return {prefix + name: value for name, value in result.items()}


def measure() -> dict[str, float]:
    """Both settings, one after the other."""
    return {
        name: value
        for prefix, words in SETTINGS.items()
        for name, value in measure_one(prefix, words).items()
    }
