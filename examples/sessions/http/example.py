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


def log(stage: Stage, name: str, component: str) -> str:
    """What a component wrote, as it is kept when its pod is gone."""
    return (
        stage.directory / "kept" / name / "logs" / f"{name}-{component}" / "main.log"
    ).read_text()


def run(stage: Stage) -> None:
    """The whole example."""
    words = ("test", "run", str(MANIFEST), "--artifacts", str(stage.directory / "kept"), *SHORT)
    with stage.step("load an HTTP server by two clients, each on a machine that nothing else uses"):
        stage.grange(*words, "--name", "load")
        status, result = session(stage, "load"), log(stage, "load", "driver").splitlines()[-1]
        figures = json.loads(result)
        if status["verdict"] != "Passed" or not figures["throughput"]:
            raise RuntimeError(f"not passed with figures: {status}, {result}")
        p99 = figures["latency_ms"]["p99"]
        stage.show(f"  {figures['throughput']:.0f} requests/s, p99 {p99:.1f} ms")
    with stage.step("again, with a server that fails: its log is the reason"):
        stage.grange(*words, "--name", "load-fails", *FAILS, code=1)
        status = session(stage, "load-fails")
        if status["verdict"] != "Failed" or REASON not in log(stage, "load-fails", "server"):
            raise RuntimeError(f"not failed by the server: {status}")
        pools = json.loads(stage.grange("lease", "pools", "-o", "json", quiet=True))["pools"]
        if any(pool["free"] != pool["nodes"] for pool in pools):
            raise RuntimeError(f"machines are still reserved: {pools}")
        stage.show("  all machines are free again")
    stage.grange("delete", "-f", str(MANIFEST), "--ignore-not-found", quiet=True)
    stage.grange("delete", "ts", "load", "load-fails", quiet=True)
