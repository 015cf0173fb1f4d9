"""``grange.testing.cluster`` as an operator author uses it, and through clients we did not write."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import LIMIT_S

from grange.api.status import BadRequest, NotFound, Timeout
from grange.testing import WaitFailed, cluster

CLIENTS = Path(__file__).resolve().parent / "clients"
pytestmark = pytest.mark.e2e

SLEEP = [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(3600)"]


def sleeper(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none", "command": SLEEP}],
        },
    }


@pytest.fixture
def running() -> Iterator[Any]:
    with cluster(nodes=2) as made:
        yield made


def test_a_pod_runs_and_goes(running: Any) -> None:
    running.create(sleeper("one"))
    pod = running.wait("pod", "one", timeout_s=LIMIT_S)
    assert pod["status"]["phase"] == "Running"
    running.delete("pod", "one")
    running.wait_gone("pod", "one", timeout_s=LIMIT_S)


def test_errors_are_those_of_the_api(running: Any) -> None:
    with pytest.raises(NotFound, match='pods "absent" not found'):
        running.get("pods", "absent")
    with pytest.raises(BadRequest, match="replcas"):
        running.create(
            {
                "apiVersion": "grange.dev/v1alpha1",
                "kind": "ReplicationController",
                "metadata": {"name": "typo"},
                "spec": {"replcas": 1},
            }
        )
    with pytest.raises(Timeout, match="not as wished"):
        running.wait("pod", "absent", timeout_s=0.1)


def test_a_replication_controller_keeps_one_pod_on_each_node(running: Any) -> None:
    running.create(
        {
            "apiVersion": "grange.dev/v1alpha1",
            "kind": "ReplicationController",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "podLabels": {"app": "web"},
                "template": {"spec": sleeper("x")["spec"]},
            },
        }
    )
    running.wait("grc", "web", timeout_s=LIMIT_S)
    pods = running.list("pods", labels="app=web")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    running.patch("grc", "web", {"spec": {"replicas": 0}})
    running.wait("grc", "web", timeout_s=LIMIT_S)
    for pod in pods:
        running.wait_gone("pod", pod["metadata"]["name"], timeout_s=LIMIT_S)
    running.delete("grc", "web")
    running.wait_gone("grc", "web", timeout_s=LIMIT_S)


def test_update_that_crashes_fails_the_wait(running: Any) -> None:
    template = {"spec": sleeper("x")["spec"]}
    manifest: dict[str, Any] = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "template": template},
    }
    running.create(manifest)
    running.wait("grc", "web", timeout_s=LIMIT_S)
    broken = {"containers": [{"name": "main", "image": "none", "command": ["no-such-program"]}]}
    running.patch("grc", "web", {"spec": {"template": {"spec": broken}}})
    with pytest.raises(WaitFailed, match="no-such-program"):
        running.wait("grc", "web", timeout_s=LIMIT_S)
    running.patch("grc", "web", {"spec": {"replicas": 0}})
    running.wait(
        "grc", "web", until=lambda found: found["status"]["replicas"] == 0, timeout_s=LIMIT_S
    )
    running.delete("grc", "web")


def test_two_clusters_live_side_by_side(running: Any) -> None:
    with cluster() as other:
        other.create(sleeper("twin"))
        running.create(sleeper("twin"))
        theirs, ours = (
            other.wait("pod", "twin", timeout_s=LIMIT_S),
            running.wait("pod", "twin", timeout_s=LIMIT_S),
        )
        assert theirs["metadata"]["uid"] != ours["metadata"]["uid"]
        assert theirs["status"]["podIP"] != ours["status"]["podIP"]
    running.delete("pod", "twin")
    running.wait_gone("pod", "twin", timeout_s=LIMIT_S)


def run_client(name: str, *words: str) -> str:
    """Run one of the programs under ``clients`` as its users would; what it printed."""
    done = subprocess.run(
        [sys.executable, str(CLIENTS / name), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_official_python_client_works_against_it(running: Any) -> None:
    pod = json.dumps(sleeper("official", labels={"by": "official"}))
    assert run_client("official.py", str(running.kubeconfig), pod) == "ok\n"
    running.wait_gone("pod", "official", timeout_s=LIMIT_S)


def test_kr8s_works_against_it(running: Any) -> None:
    assert run_client("with_kr8s.py", str(running.kubeconfig)) == "ok\n"


def test_the_fixture_gives_a_cluster_of_its_own(grange_cluster: Any) -> None:
    assert [node["metadata"]["name"] for node in grange_cluster.list("nodes")]
    assert grange_cluster.list("pods", "") == []
