"""An all-reduce over sockets: a worker is killed, the job resumes from its checkpoint, and ends right."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

MANIFEST = Path(__file__).resolve().parent / "allreduce.yaml"
STATE = "path: /tmp/grange-allreduce"
RESULT = "found 3.000000 -2.000000 0.500000 1.000000"
LIMIT_S = 60.0


class Stage(Protocol):
    """What the driver gives an example."""

    directory: Path

    def show(self, text: str) -> None: ...
    def step(self, title: str) -> Any: ...
    def grange(self, *words: str, quiet: bool = False) -> str: ...


def reached(state: Path, step: int) -> None:
    """Wait until the checkpoint is of this step or a later one."""
    checkpoint, deadline = state / "checkpoint.json", time.monotonic() + LIMIT_S
    while not checkpoint.exists() or json.loads(checkpoint.read_text())["step"] < step:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no checkpoint of step {step} within {LIMIT_S:.0f} s")
        time.sleep(0.01)


def program_of(pod: str) -> int:
    """The process of a pod as this machine numbers it; in the pod it may have another number."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended, or is another user's
                if f"POD_NAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
    raise RuntimeError(f"pod {pod} does not run")


def finished(stage: Stage) -> dict[str, Any]:
    """The status of the job once it has ended."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        job = json.loads(stage.grange("get", "gangjob", "allreduce", "-o", "json", quiet=True))
        status: dict[str, Any] = job.get("status") or {}
        if status.get("phase") in {"Succeeded", "Failed"}:
            return status
        if time.monotonic() > deadline:
            raise RuntimeError(f"the job did not end: {status}")
        time.sleep(1.0)  # each look starts a process


def run(stage: Stage) -> None:
    """The whole example."""
    manifest, state = stage.directory / "allreduce.yaml", stage.directory / "allreduce"
    manifest.write_text(MANIFEST.read_text().replace(STATE, f"path: {state}"))
    with stage.step("run a job of four workers that add up their gradients over sockets"):
        stage.grange("apply", "-f", str(manifest))
        reached(state, 20)
    with stage.step("kill a worker; the job goes on from its checkpoint"):
        process = program_of("allreduce-worker-2")
        os.kill(process, signal.SIGKILL)
        stage.show(f"  SIGKILL to worker 2, process {process}")
        status = finished(stage)
        stage.grange("get", "gangjob", "allreduce")
        if status["phase"] != "Succeeded" or status.get("restarts") != 1:
            raise RuntimeError(f"not restarted once and succeeded: {status}")
        printed = stage.grange("logs", "allreduce-worker-0")
        if RESULT not in printed or "starts at step 0" in printed:
            raise RuntimeError(f"not resumed, or not the right result: {printed!r}")
        stage.grange("delete", "-f", str(manifest), quiet=True)
