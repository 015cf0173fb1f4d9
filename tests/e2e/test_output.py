"""``-o json`` of every verb against a real control plane: standard output is one JSON document."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import GRANGE, Plane, eventually, pod

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent
KIND = "ReplicationController"
WEB = ROOT / "examples" / "quickstart" / "web.yaml"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("output") / "data", nodes=2)
    made.start()
    try:
        (made.directory.parent / "pod.yaml").write_text(pod("one", "sleep", "1000"))
        yield made
    finally:
        made.stop()


def printed(plane: Plane, line: str) -> Any:
    """The document that a verb prints."""
    words = shlex.split(line.replace("POD", str(plane.directory.parent / "pod.yaml")))
    done = plane.cli.run(*words, "--kubeconfig", str(plane.kubeconfig), "-o", "json")
    assert done.returncode == 0, (line, done.stderr)
    return json.loads(done.stdout)


def test_verbs_print_the_objects_that_they_changed(plane: Plane) -> None:
    listed = printed(plane, f"apply -f POD -f {WEB} --wait")
    assert [item["kind"] for item in listed["items"]] == ["Pod", "ConfigMap", KIND]
    assert printed(plane, "wait grc/web --timeout 30s")["status"]["readyReplicas"] == 3
    assert printed(plane, "scale grc/web --replicas 1 --wait")["spec"]["replicas"] == 1
    assert printed(plane, "delete pod one --force")["metadata"]["name"] == "one"

    named = "grange.dev/v1alpha1", KIND
    for line in (
        "rc create two -f POD --pod-label app=two",
        "rc scale two --replicas 2 --wait",
        "rc disable two",
        "rc enable two",
        "rc set-strategy two Dynamic",
        "rc update-template two -f POD -y",
        "rc pause-transfers two --for 1m",
        "rc resume-transfers two",
        "rc get two",
        "rc rollout start two --restart -y",
        "rc rollout pause two",
        "rc rollout resume two",
    ):
        found = printed(plane, line)
        assert (found["apiVersion"], found["kind"]) == named, line
        assert found["metadata"]["name"] == "two", line
    status = printed(plane, "rc rollout status two --timeout 60s")
    assert (status["done"], status["failed"]) == (True, False)
    assert printed(plane, "rc rollout history two")["revisions"]
    node = printed(plane, "get nodes")["items"][0]["metadata"]["name"]
    assert printed(plane, f"rc drain-node two {node} -y")["kind"] == KIND
    assert printed(plane, f"rc undrain-node two {node}")["kind"] == KIND
    first = printed(plane, "get pods -l app=two")["items"][0]["metadata"]["name"]
    assert printed(plane, f"rc remove-pod {first} -y")["spec"]["replicas"] == 1
    assert printed(plane, "rc delete two --force -y --cascade background")["kind"] == KIND


def test_verbs_print_what_they_found(plane: Plane) -> None:
    printed(plane, f"apply -f {WEB} --wait")
    for line in (
        "events",
        "events --types Warning",
        "events --for grc/web",
        "get pods,nodes",
        "get grc/web",
        "history web",
        "rc list",
    ):
        assert printed(plane, line)["kind"] in {"List", KIND}, line
    described = printed(plane, "describe grc/web")["items"]
    assert described[0]["object"]["metadata"]["name"] == "web"
    assert described[0]["events"]
    assert printed(plane, "rc status web")["status"]["readyReplicas"]
    assert printed(plane, "why grc/web")
    assert printed(plane, "version")["serverVersion"]["major"] == "1"
    assert [item["state"] for item in printed(plane, "farm status")["members"]] == ["Active"]
    assert printed(plane, "farm resume -y")["kind"] == "ConfigMap"

    name = printed(plane, "get pods -l app=web")["items"][0]["metadata"]["name"]
    eventually(lambda: "serving" in plane.grange("logs", name), "the program writes a line")
    line = printed(plane, f"logs {name} --tail 1")
    assert (line["pod"], bool(line["line"])) == (name, True)


def test_up_and_down_print_where_it_serves(tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        done = subprocess.run([*GRANGE, *words], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    data = tmp_path / "data"
    words = ("--data-dir", str(data), "-o", "json")
    up = run("up", *words, "--listen", "127.0.0.1:0", "--no-context", "--detach")
    try:
        assert (up["dataDir"], up["context"]) == (str(data), "")
        assert up["kubeconfig"] == str(data / "kubeconfig")
    finally:
        down = run("down", *words)
    assert (down["url"], down["pid"]) == (up["url"], up["pid"])
    assert down["remainingMachines"] == []


def test_applying_a_pod_again_leaves_it_as_it_is(plane: Plane) -> None:
    plane.grange("apply", "-f", "-", stdin=pod("again", "sleep", "1000"))
    again = plane.grange("apply", "-f", "-", stdin=pod("again", "sleep", "1000"))
    assert "pod/again unchanged" in again


def test_output_to_a_full_disk_is_one_line(plane: Plane) -> None:
    for words in (("get", "nodes"), ("get", "nodes", "-o", "yaml"), ("version",)):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*GRANGE, *words, "--kubeconfig", str(plane.kubeconfig)],
                check=False,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert done.returncode == 1
        assert done.stderr == "Error: cannot write to standard output: No space left on device\n"
