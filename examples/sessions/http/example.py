"""An HTTP load test on leased machines: it passes, then its server fails, and the machines are free."""

import json
from pathlib import Path
from typing import Any, Protocol

MANIFEST = Path(__file__).resolve().parent / "http-load.yaml"
SHORT = ("--set", "spec.scenario.seconds=0.5")
FAILS = ("--set", "spec.servers[0].env[FAIL_AFTER]=100")
REASON = "out of connections after 100 requests"


class Stage(Protocol):
    """What the driver gives an example."""

    directory: Path

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False, code: int = 0) -> str: ...


def session(stage: Stage, name: str) -> dict[str, Any]:
    """The status of a test session."""
    found = json.loads(stage.grange("get", "ts", name, "-o", "json", quiet=True))
    return dict(found["status"])


def run(stage: Stage) -> None:
    """The whole example."""
    words = ("test", "run", str(MANIFEST))
    with stage.step("load an HTTP server by two clients, each on a machine that nothing else uses"):
        stage.grange(*words, "--name", "load", *SHORT)
        status = session(stage, "load")
        figures = {item["name"]: item["value"] for item in status["metrics"]}
        if status["verdict"] != "Passed" or figures.get("throughput", 0) <= 0:
            raise RuntimeError(f"not passed with figures: {status}")
        stage.show(f"  {figures['throughput']:.0f} requests/s, p99 {figures['p99']:.1f} ms")
    with stage.step("again, with a server that fails: its log is the reason"):
        stage.grange(*words, "--name", "load-fails", *SHORT, *FAILS, code=1)
        status = session(stage, "load-fails")
        if status["verdict"] != "Failed" or REASON not in stage.grange(
            "test", "logs", "load-fails", quiet=True
        ):
            raise RuntimeError(f"not failed by the server: {status}")
        pools = json.loads(stage.grange("lease", "pools", "-o", "json", quiet=True))["pools"]
        if any(pool["free"] != pool["nodes"] for pool in pools):
            raise RuntimeError(f"machines are still reserved: {pools}")
        stage.show("  all machines are free again")
