"""kubectl reads our schemas: explain, diff, patches by merge key, and what it reports about typos."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import LIMIT_S, Plane

pytestmark = pytest.mark.e2e

CACHED = Path(__file__).parents[2] / ".cache/bin/kubectl"
KUBECTL = str(CACHED) if CACHED.exists() else shutil.which("kubectl") or str(CACHED)

Run = Callable[..., str]

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {"name": "a", "command": ["sleep", "60"], "env": [{"name": "A", "value": "1"}]},
            {"name": "b", "command": ["sleep", "60"]},
        ]
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]},
}  # fmt: skip
CONTROLLER: dict[str, Any] = {
    "apiVersion": "grange.dev/v1alpha1",
    "kind": "ReplicationController",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "a", "command": ["sleep", "60"]}]},
        },
    },
}


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """kubectl against a server that schedules and runs nothing: only the API is looked at."""
    top = tmp_path_factory.mktemp("kubectl")
    plane = Plane(top / "data", words=("--disable", "scheduler,controllers,agent"))
    plane.start()
    # Its own home, so that what it remembers of other servers does not answer for ours.
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(top)}

    def run(*words: str, code: int = 0, stdin: object = None) -> str:
        done = subprocess.run(
            [KUBECTL, *words],
            check=False,
            capture_output=True,
            text=True,
            input=stdin if isinstance(stdin, str) else json.dumps(stdin),
            env=environment,
            timeout=LIMIT_S,
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    try:
        yield run
    finally:
        plane.stop()


def changed(document: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    change(copy)
    return copy


def test_explain_shows_fields_types_and_meanings(kubectl: Run) -> None:
    assert "Containers that are scheduled to one node" in kubectl("explain", "pod")
    assert "A replicated service" in kubectl("explain", "grc")
    reported = kubectl("explain", "pod.spec.containers")
    assert "FIELD: containers <[]Container>" in reported
    assert "readinessProbe\t<Probe>" in reported
    assert "How to find out that the program can serve." in reported
    reported = kubectl("explain", "grc.spec")
    assert "GROUP:      grange.dev" in reported
    assert "replicas\t<integer> -required-" in reported
    assert "enum: OnePerNode, Packed" in reported
    assert "maxSurge\t<IntOrString>" in kubectl("explain", "grc.spec.rollout")
    older = ("explain", "--output=plaintext-openapiv2")  # reads OpenAPI v2 as protobuf
    assert "Containers that are scheduled to one node" in kubectl(*older, "pod")
    assert "restartPolicy\t<string>" in kubectl(*older, "pod.spec.containers")
    assert "replicas\t<integer> -required-" in kubectl(*older, "grc.spec")


def test_apply_twice_changes_nothing_the_second_time(kubectl: Run) -> None:
    for document in (POD, SERVICE, CONTROLLER):
        assert kubectl("apply", "-f", "-", stdin=document).endswith(("created\n", "configured\n"))
        assert kubectl("apply", "-f", "-", stdin=document).endswith("unchanged\n")
        assert kubectl("diff", "-f", "-", stdin=document) == ""


def test_apply_merges_lists_by_their_keys(kubectl: Run) -> None:
    kubectl("apply", "-f", "-", stdin=SERVICE)
    # A user else adds a port; ours is then changed and one of ours removed.
    kubectl("patch", "service", "web", "-p", '{"spec":{"ports":[{"port":9090,"name":"more"}]}}')

    def change(service: dict[str, Any]) -> None:
        service["spec"]["ports"] = [{"port": 80, "name": "http", "targetPort": 8080}]

    newer = changed(SERVICE, change)
    assert "8080" in kubectl("diff", "-f", "-", stdin=newer, code=1)
    kubectl("apply", "-f", "-", stdin=newer)
    ports = json.loads(kubectl("get", "service", "web", "-o", "json"))["spec"]["ports"]
    assert {port["name"]: port["targetPort"] for port in ports} == {"http": 8080, "more": 9090}


def test_patch_types_all_work(kubectl: Run) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("patch", "pod", "web", "-p", '{"spec":{"containers":[{"name":"b","image":"x:2"}]}}')
    kubectl("patch", "pod", "web", "--type=merge", "-p", '{"metadata":{"labels":{"tier":"front"}}}')
    operation = [{"op": "add", "path": "/metadata/labels/zone", "value": "a"}]
    kubectl("patch", "pod", "web", "--type=json", "-p", json.dumps(operation))
    found = json.loads(kubectl("get", "pod", "web", "-o", "json"))
    assert found["metadata"]["labels"] == {"app": "web", "tier": "front", "zone": "a"}
    assert [item.get("image") for item in found["spec"]["containers"]] == [None, "x:2"]
    reported = kubectl(
        "patch", "pod", "web", "-p", '{"spec":{"containers":[{"image":"x"}]}}', code=1
    )
    assert 'every item of the patch needs its merge key "name"' in reported


def test_a_typo_is_named_with_what_was_meant(kubectl: Run) -> None:
    def misspell(controller: dict[str, Any]) -> None:
        controller["metadata"]["name"] = "typo"
        controller["spec"]["replcas"] = controller["spec"].pop("replicas")

    reported = kubectl("create", "-f", "-", stdin=changed(CONTROLLER, misspell), code=1)
    assert 'unknown field "spec.replcas"; did you mean "replicas"?' in reported
    assert "spec.replicas: Required value" in reported


def test_unknown_fields_are_refused_warned_about_or_ignored(kubectl: Run) -> None:
    def extend(pod: dict[str, Any]) -> None:
        pod["metadata"]["name"] = "extended"
        pod["spec"]["strange"] = 1

    document = changed(POD, extend)
    reported = kubectl("create", "-f", "-", stdin=document, code=1)
    assert 'unknown field "spec.strange"' in reported
    reported = kubectl("create", "-f", "-", "--validate=warn", "--dry-run=server", stdin=document)
    assert 'Warning: unknown field "spec.strange"' in reported
    reported = kubectl("create", "-f", "-", "--validate=ignore", stdin=document)
    assert reported == "pod/extended created\n"


def test_every_fault_of_an_invalid_object_is_reported(kubectl: Run) -> None:
    def break_it(pod: dict[str, Any]) -> None:
        pod["metadata"]["name"] = "broken"
        del pod["spec"]["containers"][0]["command"]
        pod["spec"]["containers"][1]["name"] = "B"

    reported = kubectl("create", "-f", "-", stdin=changed(POD, break_it), code=1)
    assert 'The Pod "broken" is invalid' in reported
    assert "* spec.containers[0].command: Required value: this control plane runs pods" in reported
    assert '* spec.containers[1].name: Invalid value: "B"' in reported


def test_wide_columns_are_shown_when_asked_for(kubectl: Run) -> None:
    kubectl("apply", "-f", "-", stdin=CONTROLLER)
    narrow, wide = kubectl("get", "grc"), kubectl("get", "grc", "-o", "wide")
    assert narrow.split("\n")[0].split() == [
        *("NAME", "DESIRED", "CURRENT", "READY", "UPDATED", "PLACEMENT", "AGE"),
    ]
    assert wide.split("\n")[0].split()[7:] == ["STRATEGY", "NODES", "CONTAINERS", "PAUSED"]
