"""Policies compared on a small trace of a GPU cluster, in virtual time."""

import json
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
POLICIES = ("random", "best-fit", "fgd")
LOAD = 130


class Stage(Protocol):
    """What the driver gives an example."""

    directory: Path

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def run(stage: Stage) -> None:
    """The whole example."""
    words = ["simulate", "--nodes", str(HERE / "nodes.csv"), "--pods", str(HERE / "pods.csv")]
    words += ["--policy", ",".join(POLICIES)]
    with stage.step(f"compare GPU packing policies at {LOAD} % load, in virtual time"):
        picture = stage.directory / "simulate.svg"
        printed = stage.grange(
            *words, "--inflate", str(LOAD), "-o", "json", "--plot", str(picture), quiet=True
        )
        allocated = {item["policy"]: item["allocated"] for item in json.loads(printed)["runs"]}
        for policy, share in sorted(allocated.items(), key=lambda pair: -pair[1]):
            stage.show(f"  {policy:<10} allocates {100 * share:.1f} % of the GPUs")
        if not picture.read_text().startswith("<svg"):
            raise RuntimeError("there is no picture")
        if allocated["fgd"] <= allocated["random"]:
            raise RuntimeError(f"fgd should allocate more than random: {allocated}")
