"""A pool of leases with no machines: it grows for a test session, and shrinks after it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually

pytestmark = pytest.mark.e2e

POOL = {
    "apiVersion": "grange.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "workers"},
    "spec": {
        "provider": "local",
        "mode": "Packed",
        "instanceTypes": ["small"],
        "limits": {"machines": 2},
        "template": {"labels": {"pool": "workers"}},
        "disruption": {"consolidateAfterSeconds": 2, "budgets": [{"nodes": "100%"}]},
    },
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("growing") / "data")
    made.start()
    try:
        made.grange("apply", "-f", "-", stdin=json.dumps(POOL))
        yield made
    finally:
        made.stop()
        made.cli.run("down", "--data-dir", str(made.directory))  # where the server was killed


def session(path: Path, name: str, servers: int) -> str:
    spec = {
        "driver": {"command": ["sh", "-c", "echo to $QPS_WORKERS"]},
        "servers": [
            {"pool": "workers", "count": servers, "command": ["sh", "-c", "echo up; sleep 1000"]}
        ],
    }
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {"name": name},
        "spec": spec,
    }
    found = path / f"{name}.yaml"
    found.write_text(json.dumps(document))
    return str(found)


def live(plane: Plane) -> list[dict[str, Any]]:
    """Machines that have not ended."""
    items: list[dict[str, Any]] = plane.get("machines")["items"]
    return [one for one in items if one.get("status", {}).get("phase") != "Terminated"]


def test_a_pool_grows_for_a_session_and_shrinks(plane: Plane, tmp_path: Path) -> None:
    assert live(plane) == []
    text = plane.grange("test", "run", session(tmp_path, "grows", 2))
    assert "PASSED ts/grows-" in text
    ordered = [
        one["message"] for one in plane.get("events")["items"] if one["reason"] == "MachineOrdered"
    ]
    assert len(ordered) >= 2
    eventually(lambda: live(plane) == [], "the pool is empty again")
    (found,) = [
        one for one in plane.get("ts")["items"] if one["metadata"]["name"].startswith("grows-")
    ]
    nodes = {one["node"] for one in found["status"]["components"] if one["role"] == "server"}
    assert len(nodes) == 2, "each server has a machine to itself"
    assert not plane.get("machineleases").get("items")


def test_a_session_beyond_the_limit_ends_at_once(plane: Plane, tmp_path: Path) -> None:
    text = plane.grange("test", "run", session(tmp_path, "large", 3), code=2)
    assert "pool workers can have 2 machines at most" in text
    assert "NodePool workers allows 2" in text
    assert live(plane) == []
