"""Two gangs share a queue that has room for one: they take turns, each with all members or none."""

import json
import time
from pathlib import Path
from typing import Any, Protocol

MANIFEST = Path(__file__).resolve().parent / "gangs.yaml"
GANGS = ("blue", "green")
LIMIT_S = 40.0
PAUSE_S = 0.5  # each look starts a process


class Stage(Protocol):
    """What the driver gives an example."""

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def groups(stage: Stage) -> dict[str, dict[str, Any]]:
    """The status of each group."""
    listing = json.loads(stage.grange("get", "podgroups", "-o", "json", quiet=True))
    return {item["metadata"]["name"]: item.get("status") or {} for item in listing["items"]}


def until(stage: Stage, wanted: tuple[str, ...], count: int) -> dict[str, dict[str, Any]]:
    """Wait until so many groups are in one of these phases."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = groups(stage)
        if sum(status.get("phase") in wanted for status in found.values()) >= count:
            return found
        if time.monotonic() > deadline:
            phases = " or ".join(wanted)
            raise RuntimeError(f"no {count} groups {phases} after {LIMIT_S:.0f} s: {found}")
        time.sleep(PAUSE_S)


def waits(stage: Stage) -> dict[str, str]:
    """Why a gang waited, by gang; from the Events of its members, which outlast the wait."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        listing = json.loads(stage.grange("get", "events", "-o", "json", quiet=True))
        found: dict[str, str] = {}
        for item in listing["items"]:  # the first reason; it changes as members of others end
            if item["reason"] == "FailedScheduling" and "over quota" in item["message"]:
                gang = item["involvedObject"]["name"].rpartition("-")[0]
                found.setdefault(gang, item["message"])
        if found or time.monotonic() > deadline:
            return found
        time.sleep(PAUSE_S)


def times(stage: Stage, gang: str) -> tuple[list[str], list[str]]:
    """When the members began, and when they ended."""
    label = f"scheduling.x-k8s.io/pod-group={gang}"
    listing = json.loads(stage.grange("get", "pods", "-l", label, "-o", "json", quiet=True))
    ended = [
        item["status"]["containerStatuses"][0]["state"]["terminated"] for item in listing["items"]
    ]
    return [item["startedAt"] for item in ended], [item["finishedAt"] for item in ended]


def run(stage: Stage) -> None:
    """The whole example."""
    with stage.step("apply two gangs of three, and a queue with room for three pods"):
        stage.grange("apply", "-f", str(MANIFEST))
        until(stage, ("Running", "Finished"), 1)
        for name, message in waits(stage).items():
            stage.show(f"  {name} waits: {message}")
        stage.grange("get", "podgroups")
    with stage.step("see them take turns"):
        until(stage, ("Finished",), 2)
        spans = sorted(times(stage, gang) for gang in GANGS)
        if max(spans[0][1]) > min(spans[1][0]):
            raise RuntimeError(f"members of both gangs ran at the same time: {spans}")
        stage.grange("logs", "-l", "scheduling.x-k8s.io/pod-group in (blue,green)")
        stage.grange("delete", "-f", str(MANIFEST), quiet=True)
