"""``grange why`` against a real control plane: pods that wait, pods that run, and their owners."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually, pod

pytestmark = pytest.mark.e2e

REQUESTS = {"resources": {"requests": {"cpu": "500"}}}
ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "db"}},
            }
        ]
    }
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    with Plane(tmp_path / "data", nodes=2) as made:
        yield made


def labelled(name: str, **spec: Any) -> str:
    document = json.loads(pod(name, "sleep", "1000", **spec))
    document["metadata"]["labels"] = {"app": "db"}
    return json.dumps(document)


def test_why_pods_wait_and_why_they_are_where_they_are(plane: Plane) -> None:
    plane.grange("apply", "-f", "-", stdin=pod("big", "sleep", "1000", container=REQUESTS))
    for name in ("one", "two", "three"):
        plane.grange("apply", "-f", "-", stdin=labelled(name, affinity=ANTI))
        reported = "is on" if name != "three" else "waits until something changes"
        eventually(lambda: reported in plane.grange("why", f"pod/{name}"), f"{name} is settled")  # noqa: B023  called at once

    big = plane.grange("why", "pod/big")
    assert "0 of 2 nodes would do:\n  2  Insufficient cpu" in big
    assert "if cpu ≤ " in big
    assert "the whole node has" in big
    assert "0/2 nodes are available: 2 Insufficient cpu." in big, "its attempts"

    lonely = plane.grange("why", "pod", "three")
    assert "when pod default/one on " in lonely
    assert "when pod default/two on " in lonely

    placed = plane.grange("why", "pod/one")
    assert "(score " in placed
    eventually(lambda: "Its programs: ready" in plane.grange("why", "pod/one"), "it runs")

    document = json.loads(plane.grange("why", "pod/big", "-o", "json"))
    assert document["kind"] == "Explanation"
    assert document["state"] == "Unschedulable"
    assert plane.grange("why", "pod/big", "-o", "jsonpath={.reasons[0].nodes}") == "2"

    plane.grange("apply", "-f", "-", stdin=pod("foreign", "true", schedulerName="other"))
    eventually(
        lambda: "no scheduler here has that name" in plane.grange("why", "pod/foreign"),
        "the scheduler has seen it",
    )
    assert "schedulerName default-scheduler" in plane.grange("why", "pod/foreign")
    gates = [{"name": "example.com/quota"}]
    plane.grange("apply", "-f", "-", stdin=pod("gated", "true", schedulingGates=gates))
    eventually(
        lambda: "held back by its gates: example.com/quota" in plane.grange("why", "pod/gated"),
        "the scheduler has seen it",
    )
    assert "not found" in plane.grange("why", "pod/none", code=1)
    assert "no name; write KIND NAME" in plane.grange("why", "pods", code=64)


def test_why_a_controller_is_not_ready(plane: Plane) -> None:
    manifest = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "podLabels": {"app": "web"},
            "template": {
                "spec": {"containers": [{"name": "main", "command": ["sleep", "1"], **REQUESTS}]}
            },
        },
    }
    plane.grange("apply", "-f", "-", stdin=json.dumps(manifest))
    eventually(lambda: "if cpu ≤ " in plane.grange("why", "grc/web"), "its pods wait")
    reported = plane.grange("why", "grc/web")
    assert "0/2 ready" in reported
    assert "pod/web-" in reported
    node = plane.grange("get", "nodes", "-o", "name").split()[0]
    assert "No condition or event" in plane.grange("why", node)


def test_why_gives_the_cause_of_a_crash(plane: Plane) -> None:
    program = ["sh", "-c", "echo no port given >&2; exit 3"]
    template = {"spec": {"containers": [{"name": "main", "command": program}]}}
    manifest = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "broken"},
        "spec": {"replicas": 1, "template": template},
    }
    failed = plane.grange("apply", "-f", "-", "--wait", stdin=json.dumps(manifest), code=1)
    assert "main: ended with exit code 3: no port given" in failed
    reported = plane.grange("why", "grc/broken")
    assert "main: ended with exit code 3: no port given" in reported
    name = plane.grange("get", "pods", "-o", "name").split()[0]
    assert "ended with exit code 3: no port given" in plane.grange("why", name)
    plane.grange("delete", "grc/broken")


def test_why_without_a_scheduler(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data", words=("--disable", "scheduler"))
    plane.start()
    try:
        plane.grange("apply", "-f", "-", stdin=pod("p", "true"))
        reported = plane.grange("why", "pod/p")
        assert "No scheduler answers" in reported
        assert "--disable scheduler" in reported
    finally:
        plane.stop()
