"""Machines as processes of this computer: a waiting pod gets one, and gives it back."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.e2e.planes import Plane, eventually, pod, processes_with

pytestmark = pytest.mark.e2e

POOL = """
apiVersion: grange.dev/v1alpha1
kind: NodePool
metadata:
  name: {name}
spec:
  provider: local
  mode: Dedicated
  timeouts:
    idleSeconds: 20
"""


STANDBY = {"instanceType": "small", "count": 1}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with started(tmp_path_factory.mktemp("machines")) as made:
        yield made


@contextmanager
def started(directory: Path) -> Iterator[Plane]:
    """A control plane whose machines end with the block."""
    made = Plane(directory / "data")
    made.start()
    try:
        yield made
    finally:
        made.stop()
        made.cli.run("down", "--data-dir", str(made.directory))  # where the server was killed
    assert not agents(made)


def agents(plane: Plane) -> list[int]:
    """Processes of machines."""
    return processes_with(f"{plane.directory}/machines")


def machines(plane: Plane, pool: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.get("machines")["items"]
    return [one for one in items if one["spec"]["pool"] == pool]


def phases(plane: Plane, pool: str) -> list[str]:
    return [one.get("status", {}).get("phase", "") for one in machines(plane, pool)]


def phase_of(plane: Plane, name: str) -> str:
    return str(plane.get("pod", name)["status"].get("phase"))


def runs(plane: Plane, name: str) -> bool:
    return phase_of(plane, name) == "Running"


def start(plane: Plane, name: str, pool: str, *command: str, restart: str = "Always") -> None:
    """A pool, and a pod that waits for a machine of it."""
    plane.grange("apply", "-f", "-", stdin=POOL.format(name=pool))
    container = {"resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}
    manifest = pod(
        name,
        *(command or ("sleep", "1000")),
        restartPolicy=restart,
        nodeSelector={"grange.dev/node-pool": pool},
        container=container,
    )
    plane.grange("apply", "-f", "-", stdin=manifest)


def test_a_pod_gets_a_machine_and_gives_it_back(plane: Plane) -> None:
    start(plane, "one", "batch")
    eventually(lambda: runs(plane, "one"), "the pod runs")
    (machine,) = machines(plane, "batch")
    name = machine["metadata"]["name"]
    assert machine["status"]["phase"] == "Claimed"
    assert machine["status"]["boundPodName"] == "default/one"
    assert plane.get("pod", "one")["spec"]["nodeName"] == name
    node = plane.get("node", name)
    assert node["metadata"]["labels"]["grange.dev/node-pool"] == "batch"
    assert node["status"]["capacity"]["cpu"] == "1"
    assert [one["key"] for one in node["spec"]["taints"]] == ["grange.dev/dedicated-machine"]
    assert name not in plane.grange("token", "list")
    assert "records and provider agree (1 record, 1 instance)" in plane.grange(
        "machines", "audit", "--pool", "batch"
    )
    assert "pool batch: nothing is to be done" in plane.grange("machines", "plan")
    plane.grange("delete", "pod", "one")
    eventually(lambda: phases(plane, "batch") == ["Terminated"], "the pool shrinks")
    assert processes_with(name) == []
    eventually(
        lambda: all(n["metadata"]["name"] != name for n in plane.get("nodes")["items"]),
        "its node is gone",
    )


def test_a_wiped_machine_runs_the_next_pod(plane: Plane) -> None:
    plane.grange("apply", "-f", "-", stdin=POOL.format(name="wiped") + "  cleaning: Wipe\n")
    for name in ("first", "second"):
        waiting = pod(
            name,
            *("sleep", "1000"),
            nodeSelector={"grange.dev/node-pool": "wiped"},
            container={"resources": {"requests": {"cpu": "200m"}}},
        )
        plane.grange("apply", "-f", "-", stdin=waiting)
        eventually(partial(runs, plane, name), "the pod runs")
        if name == "first":
            plane.grange("delete", "pod", "first")
            eventually(lambda: phases(plane, "wiped") == ["Available"], "the machine is clean")
    assert len(machines(plane, "wiped")) == 1
    plane.grange("delete", "pod", "second")


def test_a_finished_pod_outlives_its_machine(plane: Plane) -> None:
    """Its result stays, its log goes with the machine."""
    start(plane, "brief", "short", "sh", "-c", "echo done", restart="Never")
    eventually(lambda: phase_of(plane, "brief") == "Succeeded", "the pod ends")
    node = plane.get("pod", "brief")["spec"]["nodeName"]
    eventually(lambda: node not in names(plane, "nodes"), "its node is gone")
    text = plane.grange("logs", "brief", code=1)
    assert f'logs of pod "brief" are gone: its node {node} does not exist any more; ' in text
    assert phase_of(plane, "brief") == "Succeeded"
    plane.grange("delete", "pod", "brief")
    assert "brief" not in names(plane, "pods")


def names(plane: Plane, kind: str) -> list[str]:
    return [str(one["metadata"]["name"]) for one in plane.get(kind)["items"]]


def test_machines_outlive_the_control_plane(tmp_path: Path) -> None:
    with started(tmp_path) as plane:
        _outlive(plane)


def _outlive(plane: Plane) -> None:
    start(plane, "two", "kept")
    eventually(lambda: runs(plane, "two"), "the pod runs")
    (name,) = [one["metadata"]["name"] for one in machines(plane, "kept")]
    (running,) = processes_with(f"--node-name {name} ")
    plane.kill()
    # At the same address, as with a port that was chosen: the agent goes on with the next server.
    config = yaml.safe_load(plane.kubeconfig.read_text())
    address = urlsplit(config["clusters"][0]["cluster"]["server"]).netloc
    plane.words = ("--listen", address)
    plane.start()
    eventually(lambda: runs(plane, "two"), "the pod runs on")
    assert phases(plane, "kept") == ["Claimed"]
    assert processes_with(f"--node-name {name} ") == [running]
    assert plane.get("pod", "two")["status"]["containerStatuses"][0]["restartCount"] == 0
    plane.grange("delete", "pod", "two")
    eventually(lambda: phases(plane, "kept") == ["Terminated"], "the pool shrinks")


def down(plane: Plane) -> str:
    """``grange down`` for its data directory; both outputs."""
    done = plane.cli.run("down", "--data-dir", str(plane.directory))
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def restarts(plane: Plane, name: str) -> int:
    return int(plane.get("pod", name)["status"]["containerStatuses"][0]["restartCount"])


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_machines_end_with_down(tmp_path: Path, killed: bool) -> None:
    with started(tmp_path) as plane:
        _end_with_down(plane, killed=killed)


def _end_with_down(plane: Plane, *, killed: bool) -> None:
    marker = f"{plane.directory.parent}/alive"
    start(plane, "four", "ended", "sh", "-c", f"while sleep 1; do touch {marker}; done")
    plane.grange("apply", "-f", "-", stdin=pod("local", "sleep", "1000"))
    eventually(lambda: runs(plane, "four") and runs(plane, "local"), "the pods run")
    (name,) = [one["metadata"]["name"] for one in machines(plane, "ended")]
    if killed:
        plane.kill()
        assert agents(plane)
    text = down(plane)
    assert name in text
    assert ("default/local" in text) is killed
    assert processes_with(str(plane.directory.parent)) == []
    assert plane.cli.run("down", "--data-dir", str(plane.directory)).returncode == 1
    if not killed:
        plane.stop()
    plane.start()
    eventually(lambda: restarts(plane, "four") == 1, "the pod runs on its machine again")
    assert [one["metadata"]["name"] for one in machines(plane, "ended")] == [name]
    assert phases(plane, "ended") == ["Claimed"]
    plane.grange("delete", "pod", "four")
    eventually(lambda: phases(plane, "ended") == ["Terminated"], "the pool shrinks")


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_down_names_the_machines_that_go_on(tmp_path: Path, killed: bool) -> None:
    with started(tmp_path) as plane:
        _name_what_goes_on(plane, killed=killed)


def _name_what_goes_on(plane: Plane, *, killed: bool) -> None:
    """Machines of a provider other than local do not end with the control plane."""
    spec = {"provider": "simulated", "mode": "Dedicated", "standby": [STANDBY]}
    meta = {"apiVersion": "grange.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "paid"}}
    start(plane, "five", "near")
    plane.grange("apply", "-f", "-", stdin=json.dumps({**meta, "spec": spec}))

    def launched() -> list[dict[str, Any]]:
        return [one for one in machines(plane, "paid") if one.get("status", {}).get("instanceID")]

    eventually(lambda: bool(launched()) and runs(plane, "five"), "machines are there")
    (machine,), (near,) = launched(), machines(plane, "near")
    name, instance = machine["metadata"]["name"], machine["status"]["instanceID"]
    if killed:
        plane.kill()
    text, line = down(plane), f"per hour: {name} (simulated {instance})"
    assert line in text
    assert killed or line in plane.errors()
    assert "grange delete nodepool paid" in text
    assert f"{near['metadata']['name']} (" not in text
    plane.stop()


def test_the_pods_of_a_crashed_agent_end(plane: Plane, tmp_path: Path) -> None:
    marker = str(tmp_path / "marker")
    start(plane, "three", "crash", "sh", "-c", f"while sleep 1; do touch {marker}; done")
    eventually(lambda: runs(plane, "three"), "the pod runs")
    (name,) = [one["metadata"]["name"] for one in machines(plane, "crash")]
    (agent,) = processes_with(f"--node-name {name} ")
    eventually(lambda: bool(processes_with(marker)), "its program runs")
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: phases(plane, "crash") in (["Terminated"], []), "its machine is found gone")
    eventually(lambda: not processes_with(marker), "its program has ended")
