"""Machines come when pods need them, and go when they do not: one for a pod alone, two for a gang."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
LIMIT_S = 300.0
PAUSE_S = 1.0  # each look starts a process
SHOWN_EACH_S = 5.0


class Stage(Protocol):
    """What the driver gives an example."""

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def listed(stage: Stage, *what: str) -> list[dict[str, Any]]:
    """Objects of the API server."""
    found: dict[str, Any] = json.loads(stage.grange("get", *what, "-o", "json", quiet=True))
    items: list[dict[str, Any]] = found["items"]
    return items


def until(stage: Stage, holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds; now and then it is shown what for."""
    started = shown = time.monotonic()
    while not holds():
        if time.monotonic() - shown > SHOWN_EACH_S:
            shown = time.monotonic()
            stage.show(f"waiting until {what} ({shown - started:.0f} s)")
        if time.monotonic() - started > LIMIT_S:
            raise RuntimeError(f"not after {LIMIT_S:.0f} s: {what}")
        time.sleep(PAUSE_S)


def live(stage: Stage, pool: str) -> list[str]:
    """Names of the machines of a pool that have not ended."""
    return [
        one["metadata"]["name"]
        for one in listed(stage, "machines")
        if one["spec"]["pool"] == pool and one.get("status", {}).get("phase", "") != "Terminated"
    ]


def nodes_of(stage: Stage, *names: str) -> list[str]:
    """The nodes that pods are on, in the order of the names; none where one waits."""
    pods = {one["metadata"]["name"]: one["spec"] for one in listed(stage, "pods")}
    found = [pods.get(name, {}).get("nodeName", "") for name in names]
    return found if all(found) else []


def wait_until_ended(stage: Stage, *pods: str) -> None:
    """Wait until pods have succeeded."""
    names = [f"pod/{name}" for name in pods]
    ended = ("--for", "jsonpath={.status.phase}=Succeeded", "--timeout", f"{LIMIT_S:.0f}s")
    stage.grange("wait", *names, *ended, quiet=True)


def shown_while_there(stage: Stage, pool: str, count: int) -> list[str]:
    """The machines of a pool, once there are so many."""
    until(stage, lambda: len(live(stage, pool)) == count, f"pool {pool} has {count} machines")
    machines = live(stage, pool)
    stage.grange("machines", "list", "--pool", pool)
    return machines


def run(stage: Stage) -> None:
    """The whole example."""
    with stage.step("give a pod a machine to itself"):
        stage.grange("apply", "-f", str(HERE / "dedicated.yaml"))
        machines = shown_while_there(stage, "alone", 1)
        until(stage, lambda: nodes_of(stage, "alone") == machines, "the pod is on its machine")
        stage.grange("get", "pods", "-o", "wide")
    with stage.step("see the machine go when the pod has ended"):
        wait_until_ended(stage, "alone")
        until(stage, lambda: not live(stage, "alone"), "the machine of the pod has ended")
        stage.grange("machines", "timeline", "--pool", "alone")
    with stage.step("see a pool grow for a gang that fits on no node"):
        stage.grange("apply", "-f", str(HERE / "shared.yaml"))
        machines = shown_while_there(stage, "shared", 2)
        pair = ("pair-0", "pair-1")
        until(
            stage,
            lambda: sorted(nodes_of(stage, *pair)) == sorted(machines),
            "each member has a machine",
        )
        stage.grange("get", "pods", "-o", "wide")
    with stage.step("see the pool shrink when the gang has ended"):
        wait_until_ended(stage, *pair)
        until(stage, lambda: not live(stage, "shared"), "the machines of the gang have ended")
        stage.grange("machines", "cost")
        stage.grange("delete", "nodepool", "alone", "shared", quiet=True)
        stage.grange("delete", "podgroup", "pair", quiet=True)
