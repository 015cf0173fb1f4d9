"""Three ordinary web servers behind one Service, called from another pod by name."""

import json
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
REPLICAS = 3
ISOLATION = "grange.dev/isolation"


class Stage(Protocol):
    """What the driver gives an example."""

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def has_namespaces(stage: Stage) -> bool:
    """Whether the nodes separate pods, so that names of Services are resolved in them."""
    nodes = json.loads(stage.grange("get", "nodes", "-o", "json", quiet=True))["items"]
    return all(node["metadata"]["labels"].get(ISOLATION) == "namespaces" for node in nodes)


def check_answers(answers: list[str]) -> None:
    """Every replica answered, under the short name and under the full one."""
    pods = {line.rpartition(" ")[2] for line in answers}
    names = {line.partition(" ")[0] for line in answers}
    if len(pods) != REPLICAS or "hello.default.svc.cluster.local" not in names:
        raise RuntimeError(f"expected {REPLICAS} replicas by every name, got {answers}")


def run(stage: Stage) -> None:
    """The whole example."""
    if not has_namespaces(stage):
        stage.show("services: left out, as this machine allows no namespaces")
        return
    with stage.step("put three ordinary web servers behind one Service"):
        stage.grange("apply", "-f", str(HERE / "hello.yaml"), "--wait")
        stage.grange("get", "services", "hello")
    with stage.step("call them by name from another pod"):
        stage.grange("apply", "-f", str(HERE / "client.yaml"))
        stage.grange("wait", "pod/client", "--for", "jsonpath={.status.phase}=Succeeded")
        check_answers(stage.grange("logs", "client").splitlines())
        stage.grange("delete", "-f", str(HERE / "client.yaml"), "-f", str(HERE / "hello.yaml"))
