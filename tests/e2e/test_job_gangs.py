"""Gangs of jobs on a real control plane: a queue holds jobs back, and elastic roles change their size."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually

from grange.app.daemon import default_interrupt

pytestmark = pytest.mark.e2e

QUEUED = "gj/train is queued: OverQuota: "


def apply(plane: Plane, path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document))
    plane.grange("apply", "-f", str(path))


def add_queue(plane: Plane, path: Path, pods: int) -> None:
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"capacity": {"pods": pods}},
    }
    apply(plane, path / "queue.yaml", document)


def add_job(plane: Plane, path: Path, name: str, workers: int, **elastic: int) -> None:
    """A server and workers, until ``end`` exists; the worker ``X`` fails when ``fail-X`` does."""
    loop = f"while [ ! -e {path}/end-{name} ]"
    script = f"{loop}; do [ -e {path}/fail-$HOSTNAME ] && exit 1; sleep 0.2; done"
    container = {"name": "main", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    role = {"restartPolicy": "Never", "template": template}
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name},
        "spec": {
            "replicaSpecs": {
                "ps": {**role, "replicas": 1, "completes": False},
                "worker": {**role, "replicas": workers, **elastic},
            },
            "runPolicy": {"cleanPodPolicy": "All", "schedulingPolicy": {"queue": "team"}},
        },
    }
    apply(plane, path / f"{name}.yaml", document)


def phase(plane: Plane, name: str) -> str:
    return str(plane.get("gj", name).get("status", {}).get("phase", ""))


def running(plane: Plane, job: str) -> dict[str, tuple[str, str]]:
    """By name of the pods that run, their UID and the identity of their program."""
    found = plane.get("pods")
    pods = found.get("items", [found])
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["status"]["containerStatuses"][0]["containerID"],
        )
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{job}-")
        and pod["status"].get("phase") == "Running"
        and not pod["metadata"].get("deletionTimestamp")
    }


def names(job: str, workers: int) -> set[str]:
    return {f"{job}-ps-0", *(f"{job}-worker-{number}" for number in range(workers))}


def test_elastic_workers_come_and_go_beside_the_others(plane: Plane, tmp_path: Path) -> None:
    add_queue(plane, tmp_path, 3)
    add_job(plane, tmp_path, "train", 4, minReplicas=1, maxReplicas=5)
    eventually(lambda: running(plane, "train").keys() == names("train", 2), "three pods run")
    # The job's status follows its pods'.
    eventually(lambda: phase(plane, "train") == "Running", "the job runs")
    [group] = plane.get("podgroups").get("items", [plane.get("podgroups")])
    assert group["spec"]["minMember"] == 2
    assert [part["minMember"] for part in group["spec"]["minParts"]] == [1, 1]
    first = running(plane, "train")

    add_queue(plane, tmp_path, 9)
    eventually(lambda: running(plane, "train").keys() == names("train", 4), "all pods run")
    plane.grange("job", "scale", "train", "worker=5")
    eventually(lambda: running(plane, "train").keys() == names("train", 5), "it grows")
    plane.grange("job", "scale", "train", "worker=3")
    eventually(lambda: running(plane, "train").keys() == names("train", 3), "it shrinks")
    (tmp_path / "fail-train-worker-1").touch()
    left = names("train", 3) - {"train-worker-1"}
    eventually(lambda: running(plane, "train").keys() == left, "one is given up")
    survivors = {name: first[name] for name in ("train-ps-0", "train-worker-0")}
    assert {name: running(plane, "train")[name] for name in survivors} == survivors
    status = plane.get("gj", "train")["status"]
    assert (status["phase"], status.get("restarts", 0)) == ("Running", 0)
    (tmp_path / "end-train").touch()
    eventually(lambda: phase(plane, "train") == "Succeeded", "it ends")


def test_job_waits_for_its_queue_without_pods(plane: Plane, tmp_path: Path) -> None:
    add_queue(plane, tmp_path, 4)
    add_job(plane, tmp_path, "one", 2)
    eventually(lambda: phase(plane, "one") == "Running", "the first job runs")
    board = ("job", "status", "one")
    eventually(lambda: "team, uses pods 3" in plane.grange(*board), "its quota is known")
    add_job(plane, tmp_path, "two", 2)
    eventually(lambda: phase(plane, "two") == "Queued", "the second job waits")
    expected = "over quota of queue team: pods 6 of 4, borrowing none; position 1 in queue team"
    eventually(lambda: expected in plane.grange("why", "gj/two"), "the reason is known")
    assert "3 of 4 pods in use, 1 waiting" in plane.grange("why", "gj/two")
    (tmp_path / "end-one").touch()
    eventually(lambda: running(plane, "two").keys() == names("two", 2), "the second job runs")
    (tmp_path / "end-two").touch()
    eventually(lambda: phase(plane, "two") == "Succeeded", "it ends")
    eventually(lambda: "quotaUsed" not in plane.get("gj", "two")["status"], "it uses none")


def test_followed_job_shows_why_it_waits(plane: Plane, tmp_path: Path) -> None:
    add_queue(plane, tmp_path, 1)
    add_job(plane, tmp_path, "train", 2)
    words = ("job", "logs", "train", "-f", "--kubeconfig", str(plane.kubeconfig))
    shown = tmp_path / "shown"
    with (
        shown.open("wb") as errors,
        default_interrupt(),  # tests in the background ignore SIGINT, which is inherited
        subprocess.Popen([*GRANGE, *words], stdout=errors, stderr=errors) as process,
    ):
        try:
            eventually(
                lambda: process.poll() is not None or QUEUED in shown.read_text(), "it is shown"
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        finally:
            process.kill()
    assert "gj/train goes on; to delete it: grange delete gj/train\n" in shown.read_text()
    assert phase(plane, "train") == "Queued"
