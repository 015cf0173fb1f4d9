"""The quickstart: a replicated web service that answers, and heals when a pod is killed."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any, Protocol

MANIFEST = Path(__file__).resolve().parent / "web.yaml"
REPLICAS = 3
HEAL_LIMIT_S = 20.0


class Stage(Protocol):
    """What the driver gives an example."""

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def pods(stage: Stage) -> list[dict[str, Any]]:
    """The service's pods that are not on their way out."""
    listing = json.loads(stage.grange("get", "pods", "-l", "app=web", "-o", "json", quiet=True))
    items: list[dict[str, Any]] = listing["items"]
    return [item for item in items if "deletionTimestamp" not in item["metadata"]]


def ready(pod: dict[str, Any]) -> bool:
    """Whether the pod's Ready condition is True."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def fetch(pod: dict[str, Any]) -> str:
    """The response of the pod's web server."""
    url = f"http://{pod['status']['podIP']}:8080/"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode()).strip()


def check_answers(stage: Stage) -> None:
    """Every replica answers for itself."""
    answers = {}
    for pod in pods(stage):
        name = pod["metadata"]["name"]
        answers[name] = fetch(pod)
        stage.show(f"  http://{pod['status']['podIP']}:8080/ → {answers[name]}")
    wrong = [name for name, answer in answers.items() if name not in answer]
    if len(answers) != REPLICAS or wrong:
        raise RuntimeError(f"expected {REPLICAS} replicas that name themselves, got {answers}")


def run(stage: Stage) -> None:
    """The whole example."""
    with stage.step("apply a replicated web service and wait until it is ready"):
        stage.grange("apply", "-f", str(MANIFEST), "--wait")
        stage.grange("get", "pods", "-o", "wide")
    with stage.step("fetch an HTTP answer from each replica"):
        check_answers(stage)
    with stage.step("kill one pod and see it replaced"):
        before = {pod["metadata"]["uid"] for pod in pods(stage)}
        victim = pods(stage)[0]["metadata"]["name"]
        stage.grange("delete", "pod", victim)
        deadline = time.monotonic() + HEAL_LIMIT_S
        while True:
            now = [pod for pod in pods(stage) if ready(pod)]
            fresh = [pod for pod in now if pod["metadata"]["uid"] not in before]
            if len(now) == REPLICAS and fresh:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(now)} of {REPLICAS} ready {HEAL_LIMIT_S:.0f} s later")
            time.sleep(0.5)  # each look starts a process
        stage.show(f"  {victim} is replaced by {fresh[0]['metadata']['name']}")
        check_answers(stage)
