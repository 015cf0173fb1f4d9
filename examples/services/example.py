"""Three ordinary web servers behind one Service, called from another pod by name."""

import json
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
REPLICAS = 3
ISOLATION, NETWORK = "grange.dev/isolation", "grange.dev/network"


class Stage(Protocol):
    """What the driver gives an example."""

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def missing(stage: Stage) -> str:
    """What the nodes lack that the example needs; empty where they have all of it."""
    nodes = json.loads(stage.grange("get", "nodes", "-o", "json", quiet=True))["items"]
    labels = [node["metadata"]["labels"] for node in nodes]
    if any(label.get(ISOLATION) != "namespaces" for label in labels):
        return "namespaces, by which pods resolve names of Services"
    if any(label.get(NETWORK) not in {"replicas", "addresses", "netns"} for label in labels):
        return "addresses for servers that listen on all of them, so replicas would collide"
    return ""


def check_answers(answers: list[str]) -> None:
    """Every replica answered, under the short name and under the full one."""
    pods = {line.rpartition(" ")[2] for line in answers}
    names = {line.partition(" ")[0] for line in answers}
    if len(pods) != REPLICAS or "hello.default.svc.cluster.local" not in names:
        raise RuntimeError(f"expected {REPLICAS} replicas by every name, got {answers}")


def run(stage: Stage) -> None:
    """The whole example."""
    if why := missing(stage):
        stage.show(f"services: left out, as this machine does not allow {why}")
        return
    with stage.step("put three ordinary web servers behind one Service"):
        stage.grange("apply", "-f", str(HERE / "hello.yaml"), "--wait")
        stage.grange("get", "services", "hello")
    with stage.step("call them by name from another pod"):
        stage.grange("apply", "-f", str(HERE / "client.yaml"))
        stage.grange("wait", "pod/client", "--for", "jsonpath={.status.phase}=Succeeded")
        check_answers(stage.grange("logs", "client").splitlines())
        stage.grange("delete", "-f", str(HERE / "client.yaml"), "-f", str(HERE / "hello.yaml"))
