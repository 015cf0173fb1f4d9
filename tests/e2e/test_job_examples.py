"""The examples of jobs: workers and the control plane are killed, and the results are right all the same."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "jobs"
PACKAGES = EXAMPLES.parents[1] / ".cache" / "jobs" / "bin"  # made by make e2e
SEED = 20


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plane]:
    """A control plane whose pods find the packages of the examples."""
    monkeypatch.setenv("PATH", f"{PACKAGES}:{os.environ['PATH']}")
    made = Plane(tmp_path / "data", nodes=3)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def apply(plane: Plane, example: str, state: Path, **replaced: str) -> None:
    """Apply an example whose state is in a directory of the test."""
    text = (EXAMPLES / example).read_text()
    replaced[f"path: /tmp/grange-{Path(example).stem}"] = f"path: {state}"
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    plane.grange("apply", "-f", "-", stdin=text)


def job_status(plane: Plane, kind: str, name: str) -> dict[str, Any]:
    """The status of a job; empty at first."""
    return dict(plane.get(kind, name).get("status") or {})


def finished(plane: Plane, kind: str, name: str) -> dict[str, Any]:
    """The status of a job once it has ended."""
    found: dict[str, Any] = {}

    def has_ended() -> bool:
        found.update(job_status(plane, kind, name))
        return found.get("phase") in {"Succeeded", "Failed"}

    eventually(has_ended, f"the end of {kind} {name}")
    return found


def step_of(checkpoint: Path) -> int:
    """The step of a checkpoint; 0 before there is one."""
    return int(json.loads(checkpoint.read_text())["step"]) if checkpoint.exists() else 0


def after_step(checkpoint: Path, step: int) -> None:
    """Wait until a checkpoint is of this step or a later one."""
    eventually(lambda: step_of(checkpoint) >= step, f"a checkpoint of step {step}")


def kill_process(lock: Path) -> int:
    """SIGKILL to the process that a lock file names; its number."""
    process = int(lock.read_text())
    os.kill(process, signal.SIGKILL)
    return process


def test_allreduce_resumes_after_kills(plane: Plane, tmp_path: Path) -> None:
    """Of a worker; of the control plane, and of a worker while there is none.

    A worker whose index runs already exits with 70, and the job fails.
    """
    state = tmp_path / "state"
    checkpoint, rng = state / "checkpoint.json", random.Random(SEED)
    apply(plane, "allreduce/allreduce.yaml", state, **{'"STEP_S", "0.02"': '"STEP_S", "0.05"'})
    after_step(checkpoint, 20)
    kill_process(state / f"worker-{rng.randrange(4)}.lock")
    after_step(checkpoint, 40)
    plane.kill()
    kill_process(state / f"worker-{rng.randrange(4)}.lock")
    plane.start()
    status = finished(plane, "gangjob", "allreduce")
    assert (status["phase"], status["restarts"]) == ("Succeeded", 2), status
    printed = plane.grange("logs", "allreduce-worker-0")
    resumed = int(printed.partition("starts at step ")[2].split()[0])
    assert printed.startswith("attempt 2 starts")
    assert 40 <= resumed < 80
    assert "found 3.000000 -2.000000 0.500000 1.000000" in printed


def test_parameter_server_outlives_its_members(plane: Plane, tmp_path: Path) -> None:
    """A killed worker and a killed server are replaced alone; the chief ends the job with the result."""
    state, rng = tmp_path / "state", random.Random(SEED)
    server = rng.randrange(2)
    checkpoint = state / f"ps-{server}.json"
    apply(plane, "parameter-server/parameter-server.yaml", state)

    def changes() -> int:
        return int(json.loads(checkpoint.read_text())["changes"]) if checkpoint.exists() else 0

    eventually(lambda: changes() >= 100, "a hundred changes of the weights")
    kill_process(state / f"worker-{rng.randrange(3)}.lock")
    kill_process(state / f"ps-{server}.lock")
    status = finished(plane, "tfjob", "parameter-server")
    assert (status["phase"], status["restarts"]) == ("Succeeded", 2), status
    printed = plane.grange("logs", "parameter-server-chief-0")
    assert printed == "found 3.0000 -2.0000 0.5000 1.0000\n"
    eventually(
        lambda: plane.grange("get", "pods", "-o", "name") == "pod/parameter-server-chief-0\n",
        "the end of servers and workers",
    )


def test_pytorch_resumes_to_the_same_accuracy(plane: Plane, tmp_path: Path) -> None:
    """The checkpoint has the epoch before the worker was lost; the model reads the digits in the end."""
    state, rng = tmp_path / "state", random.Random(SEED)
    two = {"replicas: 3": "replicas: 2"}  # each attempt of a worker loads torch, for seconds
    apply(plane, "pytorch/digits.yaml", state, **two)
    epoch = state / "epoch"
    eventually(lambda: epoch.exists() and int(epoch.read_text()) >= 3, "three epochs")
    kill_process(state / f"worker-{rng.randrange(2)}.lock")
    status = finished(plane, "gangjob", "digits")
    printed = plane.grange("logs", "digits-worker-0")
    assert (status["phase"], status["restarts"]) == ("Succeeded", 1), (status, printed)
    assert printed.startswith("attempt 1 starts after epoch ")
    assert int(printed.partition("after epoch ")[2].split()[0]) >= 3
    assert float(printed.partition("accuracy ")[2]) >= 0.95


def test_mpi_resumes_after_kills(plane: Plane, tmp_path: Path) -> None:
    """Of a rank, which ends mpirun, and of the process of a worker's pod."""
    state, rng = tmp_path / "state", random.Random(SEED)
    checkpoint = state / "checkpoint.json"
    apply(plane, "mpi/pi.yaml", state)
    after_step(checkpoint, 20)
    kill_process(state / f"rank-{rng.randrange(4)}.lock")
    after_step(checkpoint, 50)
    kill_process(state / f"worker-{rng.randrange(4)}.pid")
    status = finished(plane, "gangjob", "pi")
    printed = plane.grange("logs", "pi-launcher-0")
    assert (status["phase"], status["restarts"]) == ("Succeeded", 2), (status, printed)
    assert "starts at step 0" not in printed
    assert "pi 3.1415926536\n" in printed
