"""A rolling update of the quickstart service under constant HTTP requests, without one that fails.

Clients follow the pods by a watch and ask only replicas that are Ready and not on their way out. A
replica that gets SIGTERM goes on answering for a moment, because a client may just have chosen it.
"""

import json
import random
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Protocol

MANIFEST = Path(__file__).resolve().parent / "web.yaml"
CLIENTS = 4
PAUSE_S = 0.01  # between two requests of a client
LIMIT = "90s"
AFTER_S = 1.0  # requests go on for so long before and after


class Stage(Protocol):
    """What the driver gives an example."""

    kubeconfig: Path

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


class Replicas:
    """The replicas that may be asked now, kept up to date by a watch."""

    def __init__(self, kubeconfig: Path) -> None:
        self._addresses: dict[str, str] = {}
        self._lock = threading.Lock()
        self.least = sys.maxsize
        command = [sys.executable, "-m", "grange", "get", "pods", "-l", "app=web", "-o", "json"]
        self._watch = subprocess.Popen(
            [*command, "--watch", "--kubeconfig", str(kubeconfig)],
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        decoder, text = json.JSONDecoder(), ""
        for line in self._watch.stdout or ():
            text += line
            try:
                found, end = decoder.raw_decode(text.lstrip())
            except json.JSONDecodeError:
                continue  # the object goes on in the next line
            text = text.lstrip()[end:]
            for pod in found.get("items", [found]):
                self._see(pod)

    def _see(self, pod: dict[str, Any]) -> None:
        conditions = pod.get("status", {}).get("conditions", [])
        is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
        with self._lock:
            if is_ready and "deletionTimestamp" not in pod["metadata"]:
                self._addresses[pod["metadata"]["uid"]] = pod["status"]["podIP"]
            else:
                self._addresses.pop(pod["metadata"]["uid"], None)
            self.least = min(self.least, len(self._addresses))

    def addresses(self) -> list[str]:
        """Where to ask."""
        with self._lock:
            return list(self._addresses.values())

    def count_from_here(self) -> None:
        """Forget the least number of replicas seen so far."""
        with self._lock:
            self.least = len(self._addresses)

    def close(self) -> None:
        """End the watch."""
        self._watch.terminate()
        self._watch.wait(10)


class Clients:
    """Threads that ask a replica, drawn at random, again and again.

    Args:
        replicas: whom to ask.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._over = threading.Event()
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._over.is_set():
            addresses = self._replicas.addresses()
            if not addresses:
                self.failures.append("no replica is ready")
            else:
                url = f"http://{random.choice(addresses)}:8080/"
                try:
                    with urllib.request.urlopen(url, timeout=5) as answer:
                        self.answers.append(answer.read().decode().strip())
                except OSError as error:
                    self.failures.append(f"{url}: {error}")
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
        for thread in self._threads:
            thread.join(10)


def wait_for_replicas(replicas: Replicas, count: int) -> None:
    """Until the watch has shown so many."""
    deadline = time.monotonic() + 20
    while len(replicas.addresses()) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(replicas.addresses())} of {count} replicas are ready")
        time.sleep(0.05)


def run(stage: Stage) -> None:
    """The whole example; the quickstart's service is there."""
    before = json.loads(stage.grange("get", "grc", "web", "-o", "json", quiet=True))
    wanted = before["spec"]["replicas"]
    replicas = Replicas(stage.kubeconfig)
    try:
        wait_for_replicas(replicas, wanted)
        replicas.count_from_here()
        clients = Clients(replicas)
        try:
            with stage.step("roll out a new template under constant requests"):
                time.sleep(AFTER_S)
                stage.grange("apply", "-f", str(MANIFEST), "--wait", "--timeout", LIMIT)
                time.sleep(AFTER_S)
        finally:
            clients.close()
    finally:
        replicas.close()
    old = sum(answer.startswith("Hello") for answer in clients.answers)
    new = sum(answer.startswith("Bonjour") for answer in clients.answers)
    stage.show(f"  {old} answers of the old template, {new} of the new one")
    stage.show(f"  {len(clients.failures)} failed, at least {replicas.least} replicas ready")
    if clients.failures:
        raise RuntimeError(f"{len(clients.failures)} requests failed: {clients.failures[:3]}")
    if not old or not new:
        raise RuntimeError(f"{old} old and {new} new answers: the clients saw no rollout")
