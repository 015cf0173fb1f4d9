"""What many pods and kills leave behind: nothing, it should be.

Pods come and go in batches. After each batch, supervisors of containers are killed, or the server with
the agent in it, or both, and the server is started again. The scenario is small; the whole of it is
python -m bench.endurance --pods 2000 --kills 50
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.agents import Api
from bench.pods import PODS, descendants, pod
from bench.startup import free_port, grange, rss_mb, until_ready
from grange.agent.runtimes.process import cgroups
from grange.agent.runtimes.process.pod_networks import PodNetworks

BATCH = 40
LIMIT_S = 300.0
SCRIPT = "sleep 600 & (setsid sleep 600 &) ; exec sleep 600"  # with a child and a daemon


class Server:
    """A control plane that is killed and started again on its data.

    Args:
        words: more of its command line.
    """

    def __init__(self, *words: str) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="grange-bench-"))
        self.data = self.scratch / "data"
        self._port = free_port()
        self._words = words
        self.process: subprocess.Popen[bytes] | None = None
        self.api: Api | None = None

    def start(self) -> None:
        """Start it, and wait until its node is Ready."""
        url = f"https://127.0.0.1:{self._port}"
        self.process = subprocess.Popen(
            grange(
                *("up", "--data-dir", str(self.data), "--listen", f"127.0.0.1:{self._port}"),
                *("--no-switch", "--cri-socket", "none", "--eviction-hard", "none", *self._words),
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until_ready(url, LIMIT_S)
        self.api = api = Api(url, self.data)
        until("a node", lambda: bool(api.ask("/api/v1/nodes")["items"]))
        api.until_condition(f"/api/v1/nodes/{self.node}")

    @property
    def node(self) -> str:
        """The name of its node."""
        assert self.api is not None
        return str(self.api.ask("/api/v1/nodes")["items"][0]["metadata"]["name"])

    def end(self, number: int) -> None:
        """Signal it and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(LIMIT_S)

    def shims(self) -> list[int]:
        """The supervisors of containers, whose parent may have ended."""
        return [pid for pid, name in self.related().items() if name == "grange-shim"]

    def related(self) -> dict[int, str]:
        """Processes with the data directory in their environment, command line or open files."""
        text, found = str(self.data).encode(), {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                pieces = [(entry / name).read_bytes() for name in ("environ", "cmdline")]
                places = [entry / "cwd", *(entry / "fd").iterdir()]
                pieces += [os.readlink(place).encode() for place in places]
                name = (entry / "comm").read_text().strip()
            except OSError:  # it has ended
                continue
            if any(text in piece for piece in pieces):
                found[int(entry.name)] = name
        return found

    def left(self) -> dict[str, int]:
        """What there is of its pods."""
        named = cgroups.name_of(self.data)
        prefix = PodNetworks(str(self.data), "").name("")[:7]
        networks = {
            item.name
            for place in (Path("/run/netns"), Path("/sys/class/net"))
            if place.is_dir()
            for item in place.iterdir()
            if item.name.startswith(prefix)
        }
        groups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if f"/{named}/" in path]
        mounts = Path("/proc/self/mountinfo").read_text().count(str(self.data))
        pods = self.data / "pods"
        return {
            "directories": len(list(pods.iterdir())) if pods.is_dir() else 0,
            "processes": len(self.shims()),
            "groups": len(groups),
            "networks": len(networks),
            "mounts": mounts,
        }


def until(what: str, holds: Callable[[], bool]) -> None:
    """Poll until it holds."""
    deadline = time.perf_counter() + LIMIT_S
    while not holds():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(0.1)


def run_batch(server: Server, batch: int, count: int) -> None:
    """Create pods and wait until they run."""
    assert server.api is not None
    api, node = server.api, server.node
    for number in range(count):
        made = pod(f"p{batch}-{number}", node)
        made["spec"]["containers"][0]["command"] = ["sh", "-c", SCRIPT]
        made["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
        api.ask(PODS, made)

    def run() -> bool:
        items = api.ask(PODS)["items"]
        return all(item.get("status", {}).get("phase") == "Running" for item in items)

    until("all pods run", run)


def delete_all(server: Server) -> None:
    """Delete the pods and wait until the API and the node have none."""
    assert server.api is not None
    api = server.api
    api.ask(PODS, method="DELETE")
    until("the pods are gone", lambda: not api.ask(PODS)["items"])
    until(f"nothing is left of them: {server.left()}", lambda: not any(server.left().values()))


def kill(server: Server, batch: int, kills: int) -> int:
    """Kill supervisors, the server, or both by turns; how many processes that were."""
    count = 0
    if batch % 3 == 1:
        server.end(signal.SIGKILL)
        count += 1
    if batch % 3 != 1 or kills - count > 1:
        for pid in server.shims()[: min(3, kills - count)]:
            os.kill(pid, signal.SIGKILL)
            count += 1
    if batch % 3 == 1:
        server.start()
    return count


def endure(pods: int, kills: int, *words: str) -> dict[str, float]:
    """Run it; what is left at the end, and how long it took."""
    server, at = Server(*words), time.perf_counter()
    killed = made = batch = 0
    descriptors = before_mb = 0.0
    try:
        server.start()
        while made < pods:
            count = min(BATCH, pods - made)
            run_batch(server, batch, count)
            made += count
            killed += kill(server, batch, kills - killed) if killed < kills else 0
            delete_all(server)
            batch += 1
            print(f"{made} pods, {killed} kills", file=sys.stderr, flush=True)
        # What a server keeps is compared over batches of one process.
        assert server.process is not None
        opened = Path(f"/proc/{server.process.pid}/fd")
        for last in range(2):
            descriptors, before_mb = len(list(opened.iterdir())), rss_mb(server.process.pid)
            run_batch(server, batch + last, BATCH)
            delete_all(server)
        made += 2 * BATCH
        result = {
            "pods": float(made),
            "kills": float(killed),
            "left_descriptors": max(0.0, len(list(opened.iterdir())) - descriptors),
            "grown_mb": rss_mb(server.process.pid) - before_mb,
        }
        launched = len(descendants(server.process.pid))
        server.end(signal.SIGTERM)
        until("every process has ended", lambda: not server.related())
        result |= {f"left_{name}": float(value) for name, value in server.left().items()}
        result["left_processes"] += float(max(0, launched - 2))  # besides server and launcher
        result["endurance_s"] = time.perf_counter() - at
        return result
    finally:
        if server.process is not None and server.process.poll() is None:
            server.end(signal.SIGTERM)
        shutil.rmtree(server.scratch, ignore_errors=True)


def measure() -> dict[str, float]:
    """The small scenario."""
    return endure(120, 6)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.endurance", description=__doc__)
    parser.add_argument("--pods", type=int, default=120)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("words", nargs="*", help="of grange up, after --")
    given = parser.parse_args()
    print(json.dumps(endure(given.pods, given.kills, *given.words), indent=1))
