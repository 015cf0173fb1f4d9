"""A second machine joins, and takes over the pods of the first when that one goes away."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from takeover.network import MachineNetwork

HERE = Path(__file__).resolve().parent
MACHINES = ("worker-1", "worker-2")
REPLICAS = 2
LIMIT_S = 60
PAUSE_S = 1.0  # each look starts a process


class Stage(Protocol):
    """What the driver gives an example."""

    directory: Path
    machines: MachineNetwork

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


@contextmanager
def machine(stage: Stage, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A machine that joins and is shut down at the end: an agent on this computer."""
    network = stage.machines
    printed = stage.grange("token", "create", "--node", name, "--once", *_server(stage), quiet=True)
    stage.show(f"$ {printed.strip()}")
    directory = stage.directory / "agents" / name
    inside = network.inside.get(name, ())
    words = [*inside, sys.executable, "-m", *shlex.split(printed), "--data-dir", str(directory)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as agent:
        try:
            stage.grange("wait", f"node/{name}", "--for", "create", quiet=True)
            stage.grange("wait", f"node/{name}", "--for", "condition=Ready")
            yield agent
        finally:
            shut_down(agent)


def _server(stage: Stage) -> tuple[str, ...]:
    """How machines name the control plane, where that is not as this one does."""
    if not stage.machines.address:
        return ()
    port = urlsplit(json.loads((stage.directory / "up.json").read_text())["url"]).port
    return "--server", f"https://{stage.machines.address}:{port}"


def shut_down(agent: "subprocess.Popen[bytes]") -> None:
    """End an agent and its pods; idempotent."""
    agent.send_signal(signal.SIGTERM)
    agent.wait(LIMIT_S)


def pods(stage: Stage) -> list[dict[str, Any]]:
    """The pods of the example as they are now."""
    answer = json.loads(stage.grange("get", "pods", "-l", "app=worker", "-o", "json", quiet=True))
    found: list[dict[str, Any]] = answer["items"]
    return found


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready."""
    conditions = pod["status"].get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def wait_until_on(stage: Stage, name: str) -> None:
    """Wait until every replica is ready on a machine.

    Raises:
        RuntimeError: they are not in time.
    """
    deadline = time.monotonic() + LIMIT_S
    while True:
        nodes = [pod["spec"].get("nodeName") for pod in pods(stage) if is_ready(pod)]
        if nodes == REPLICAS * [name]:
            stage.show(f"  {REPLICAS} pods are ready on {name}")
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"expected {REPLICAS} ready pods on {name}, got them on {nodes}")
        time.sleep(PAUSE_S)


def run(stage: Stage) -> None:
    """The whole example."""
    if stage.machines.address:
        stage.show(f"each machine is a network namespace; {stage.machines.address} is ours")
    with ExitStack() as machines:
        with stage.step("join a machine, and run two pods on it"):
            first = machines.enter_context(machine(stage, MACHINES[0]))
            stage.grange("apply", "-f", str(HERE / "worker.yaml"), "--wait")
            wait_until_on(stage, MACHINES[0])
        with stage.step("join a second machine"):
            machines.enter_context(machine(stage, MACHINES[1]))
        with stage.step("shut the first one down: the second one takes its pods over"):
            shut_down(first)
            wait_until_on(stage, MACHINES[1])
            stage.grange("get", "nodes")
            stage.grange("delete", "-f", str(HERE / "worker.yaml"))
