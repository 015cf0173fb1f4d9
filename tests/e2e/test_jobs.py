"""``grange job`` on a real control plane: run, watch, change and explain jobs."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually

pytestmark = pytest.mark.e2e


def manifest(
    path: Path,
    name: str,
    script: str,
    *,
    replicas: int = 2,
    policy: str = "Never",
    **spec: Any,
) -> str:
    container = {"name": "main", "command": ["sh", "-c", script]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name},
        "spec": {
            "replicaSpecs": {
                "worker": {
                    "replicas": replicas,
                    "minReplicas": 1,
                    "maxReplicas": 4,
                    "restartPolicy": policy,
                    "template": {"spec": pod},
                }
            },
            **spec,
        },
    }
    found = path / f"{name}.yaml"
    found.write_text(json.dumps(document))
    return str(found)


def phase(plane: Plane, name: str) -> str:
    return str(plane.get("gj", name).get("status", {}).get("phase", ""))


def pods(plane: Plane) -> set[str]:
    found = plane.get("pods")
    return {str(item["metadata"]["uid"]) for item in found.get("items", [found])}


def test_run_follows_the_logs_of_all_members(plane: Plane, tmp_path: Path) -> None:
    good = manifest(tmp_path, "good", "echo from $HOSTNAME; sleep 1; echo done")
    shown = plane.grange("job", "run", "-f", good, "--follow")
    for line in ("[worker-0] done", "[worker-1] done", "gj/good succeeded"):
        assert line in shown
    assert "exists already" in plane.grange("job", "run", "-f", good, code=1)
    bad = manifest(tmp_path, "bad", "echo broken; exit 3")
    text = plane.grange("job", "run", "-f", bad, "--wait", code=1)
    assert "failed: gj/bad" in text
    assert "exit code 3" in text
    assert "exit code 3" in plane.grange("why", "gj/bad")
    assert "failed" in plane.grange("wait", "gj/bad", "--for", "condition=Succeeded", code=1)
    listed = plane.grange("job", "list")
    assert "gj/good   Succeeded" in listed
    assert "gj/bad    Failed" in listed
    assert "[worker-1] done" in plane.grange("job", "logs", "good", "--index", "1")
    timeline = plane.grange("job", "timeline", "good")
    assert "good-worker-1" in timeline
    assert "Succeeded" in timeline
    picture = tmp_path / "good.svg"
    plane.grange("job", "timeline", "good", "--svg", str(picture))
    assert picture.read_text().startswith("<svg")


def test_job_is_suspended_resumed_restarted_and_scaled(plane: Plane, tmp_path: Path) -> None:
    plane.grange("job", "run", "-f", manifest(tmp_path, "train", "sleep 1000"))
    eventually(lambda: phase(plane, "train") == "Running", "the job runs")
    first = pods(plane)
    assert "gj/train restarts all roles" in plane.grange("job", "restart", "train")
    eventually(
        lambda: len(pods(plane) - first) == 2 and phase(plane, "train") == "Running",
        "all pods are replaced",
    )
    status = plane.get("gj", "train")["status"]
    assert (status.get("restarts", 0), status["unchargedRestarts"]) == (0, 1)
    assert "has no role ps" in plane.grange("job", "restart", "train", "--role", "ps", code=64)

    plane.grange("job", "suspend", "train")
    eventually(lambda: phase(plane, "train") == "Suspended" and not pods(plane), "no pods")
    plane.grange("job", "resume", "gj/train")
    eventually(lambda: phase(plane, "train") == "Running" and len(pods(plane)) == 2, "it runs")

    plane.grange("job", "scale", "train", "worker=3")
    eventually(lambda: len(pods(plane)) == 3, "a third worker")
    board = " ".join(plane.grange("job", "status", "train").split())
    assert "Phase: Running" in board
    assert "train-worker-2" in board
    assert "has no role ps" in plane.grange("job", "scale", "train", "ps=1", code=64)


def test_rule_restarts_a_process_in_its_pod(plane: Plane, tmp_path: Path) -> None:
    script = f"cd {tmp_path}; [ -e ran-$HOSTNAME ] || {{ touch ran-$HOSTNAME; exit 42; }}; "
    script += "until [ -e end ]; do sleep 0.1; done"
    rule = {"action": "RestartPodInPlace", "onExitCodes": {"operator": "In", "values": [42]}}
    policy = {"maxRestarts": 2, "rules": [rule]}
    path = manifest(tmp_path, "again", script, failurePolicy=policy)
    plane.grange("job", "run", "-f", path)

    def restarts() -> list[int]:
        found = plane.get("gj", "again").get("status", {}).get("replicaStatuses", {})
        return [role.get("inPlaceRestarts", 0) for role in found.values()]

    eventually(lambda: restarts() == [2], "both processes were restarted")
    first = pods(plane)
    assert phase(plane, "again") == "Running"
    assert "0 charged, 0 not charged, 2 in place" in plane.grange("job", "status", "again")
    events = ("events", "--for", "gj/again")
    eventually(lambda: "RestartedInPlace" in plane.grange(*events), "an event names the pods")
    (tmp_path / "end").touch()
    eventually(lambda: phase(plane, "again") == "Succeeded", "it ends")
    assert pods(plane) == first
    status = plane.get("gj", "again")["status"]
    assert (status["restarts"], status["restartsTowardsMax"]) == (2, 2)


def test_why_names_what_a_gang_waits_for(plane: Plane, tmp_path: Path) -> None:
    path = manifest(tmp_path, "big", "true")
    document = json.loads(Path(path).read_text())
    container = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "5000"}}
    Path(path).write_text(json.dumps(document))
    plane.grange("job", "run", "-f", path)
    eventually(lambda: phase(plane, "big") == "Queued", "it waits")
    eventually(lambda: plane.grange("why", "gj/big").count("gang wants 1") == 1, "it is known")
    text = plane.grange("why", "gj/big")
    assert "Gang big-" in text
    assert "(cpu 5000 each), room for 0 (can never fit on these nodes: 0 when empty)" in text
    assert "pod/big-worker-0, pod/big-worker-1: each waits for its gang default/big-" in text
    plane.grange("job", "suspend", "big")
    eventually(lambda: phase(plane, "big") == "Suspended", "it is suspended")
    assert "What to do: grange job resume big." in plane.grange("why", "gj/big")


def test_why_goes_down_to_a_failing_probe(plane: Plane, tmp_path: Path) -> None:
    path = manifest(tmp_path, "deaf", f"until [ -e {tmp_path}/end ]; do sleep 0.1; done")
    document = json.loads(Path(path).read_text())
    container = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    check = ["sh", "-c", f"[ -e {tmp_path}/up ] || {{ echo no model yet; exit 1; }}"]
    container["readinessProbe"] = {"exec": {"command": check}, "periodSeconds": 1}
    Path(path).write_text(json.dumps(document))
    plane.grange("job", "run", "-f", path)
    eventually(lambda: "no model yet" in plane.grange("why", "gj/deaf"), "the probe is named")
    text = plane.grange("why", "gj/deaf")
    assert "pod/deaf-worker-0" in text
    assert "eadiness probe failed" in text
    (tmp_path / "up").touch()
    eventually(lambda: "Not ready" not in plane.grange("why", "gj/deaf"), "the pods are ready")
    (tmp_path / "end").touch()
    eventually(lambda: phase(plane, "deaf") == "Succeeded", "it ends")


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_stop_of_the_control_plane_is_no_failure(plane: Plane, tmp_path: Path, policy: str) -> None:
    script = f"cd {tmp_path}; until [ -e end ]; do sleep 0.1; done"
    path = manifest(tmp_path, "kept", script, runPolicy={"backoffLimit": 0}, policy=policy)
    plane.grange("job", "run", "-f", path)
    eventually(lambda: phase(plane, "kept") == "Running", "it runs")
    first = pods(plane)
    assert plane.stop() == 0
    plane.start()
    eventually(lambda: pods(plane).isdisjoint(first), "its pods are replaced")
    eventually(lambda: phase(plane, "kept") == "Running", "it runs again")
    (tmp_path / "end").touch()
    eventually(lambda: phase(plane, "kept") == "Succeeded", "it ends")
    status = plane.get("gj", "kept")["status"]
    assert [role.get("restarts", 0) for role in status["replicaStatuses"].values()] == [0]


def restart_counts(plane: Plane) -> list[int]:
    found = plane.get("pods")["items"]
    statuses = [item["status"].get("containerStatuses", [{}])[0] for item in found]
    return [status.get("restartCount", -1) if status.get("ready") else -1 for status in statuses]


def test_stops_are_not_charged_to_pods_that_go_on(plane: Plane, tmp_path: Path) -> None:
    """Pods that are always restarted stay themselves; twice, so that a number is carried on."""
    path = manifest(
        tmp_path, "kept", "exec sleep 1000", runPolicy={"backoffLimit": 1}, policy="Always"
    )
    plane.grange("job", "run", "-f", path)
    eventually(lambda: restart_counts(plane) == [0, 0], "it runs")
    first = pods(plane)
    for stops in (1, 2):
        assert plane.stop() == 0
        plane.start()
        eventually(lambda: restart_counts(plane) == [stops, stops], "it runs again")  # noqa: B023  called at once
    eventually(lambda: phase(plane, "kept") == "Running", "its status is of now")
    assert pods(plane) == first
    (role,) = plane.get("gj", "kept")["status"]["replicaStatuses"].values()
    assert (role.get("restarts", 0), role.get("inPlaceRestarts", 0)) == (0, 0)
