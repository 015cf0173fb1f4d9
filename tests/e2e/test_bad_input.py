"""Bad input of every sort: the error names the thing and the remedy, and nothing is half done."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import LIMIT_S, Plane, eventually, pod

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("bad") / "data") as made:
        yield made


CONFIGMAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: %s}"


@pytest.mark.parametrize(
    ("manifest", "messages"),
    [
        (
            "{apiVersion: v1, kind: Pud, metadata: {name: x}}",
            ["Pud", "did you mean Pod (v1)?"],
        ),
        ("{apiVersion: v1, metadata: {name: x}}", ["without kind"]),
        ("kind: [unclosed", ["standard input", "line 2"]),
        ("a: b\n  c: d: e\n", ["standard input", "line 2"]),
        (pod("x", "true").replace('"containers"', '"contaners"'), ["contaners", "containers"]),
        (pod("x", "true", hostname=3), ["spec.hostname", "string"]),
        (pod("x"), ["spec.containers[0].command", "name the program"]),
        (pod("X_x", "true"), ["metadata.name", "X_x"]),
        (CONFIGMAP % ("x", "[1]"), ["data"]),
        (
            "{apiVersion: grange.dev/v1alpha1, kind: ReplicationController, metadata: {name: x},"
            " spec: {template: {spec: {containers: [{name: c, command: [a]}]}}}}",
            ["spec.replicas", "equired"],
        ),
        (
            "{apiVersion: grange.dev/v1alpha1, kind: ReplicationController, metadata: {name: x},"
            " spec: {replicas: -1, template: {spec: {containers: [{name: c, command: [a]}]}}}}",
            ["spec.replicas", "-1"],
        ),
    ],
)
def test_a_bad_manifest_is_refused_by_the_name_of_its_fault(
    plane: Plane, manifest: str, messages: list[str]
) -> None:
    reported = plane.grange("apply", "-f", "-", stdin=manifest, code=1)
    for message in messages:
        assert message in reported
    assert "Traceback" not in reported


def test_an_oversized_object_is_refused(plane: Plane) -> None:
    reported = plane.grange(
        "apply", "-f", "-", stdin=CONFIGMAP % ("big", json.dumps({"k": "x" * 4_000_000})), code=1
    )
    assert "too large" in reported.lower() or "RequestEntityTooLarge" in reported
    assert "NotFound" in plane.grange("get", "cm", "big", code=1)


def test_unknown_things_are_named(plane: Plane) -> None:
    assert 'no resource type "widgets"' in plane.grange("get", "widgets", code=1)
    assert 'pods "none" not found' in plane.grange("get", "pod", "none", code=1)
    assert "none.yaml" in plane.grange("apply", "-f", "none.yaml", code=1)


def test_a_missing_or_terminating_namespace_is_named(plane: Plane) -> None:
    missing = plane.grange("apply", "-n", "nowhere", "-f", "-", stdin=pod("x", "true"), code=1)
    assert 'namespaces "nowhere" not found' in missing
    plane.grange(
        "apply", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: ns}}"
    )
    held: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    held["metadata"] = {"name": "held", "finalizers": ["example.org/hold"]}
    plane.grange("apply", "-n", "ns", "-f", "-", stdin=json.dumps(held))
    plane.grange("delete", "namespace", "ns", "--no-wait")
    reported = plane.grange("apply", "-n", "ns", "-f", "-", stdin=pod("late", "true"), code=1)
    assert "ns" in reported
    assert "terminat" in reported
    held["metadata"]["finalizers"] = []
    plane.grange("apply", "-n", "ns", "-f", "-", stdin=json.dumps(held))
    plane.grange(
        "wait",
        "namespace/ns",
        "--for",
        "delete",
    )


def test_a_program_that_is_not_there_is_named_in_the_pod(plane: Plane) -> None:
    plane.grange("apply", "-f", "-", stdin=pod("typo", "pyhton3", "-V"))

    def is_reported() -> bool:
        return "pyhton3" in plane.grange("describe", "pod", "typo")

    eventually(is_reported, "the program is named")
    reported = plane.grange("wait", "pod/typo", "--timeout", "1s", code=1)
    assert "pyhton3" in reported
    plane.grange("delete", "pod", "typo")


def test_a_probe_that_never_passes_is_reported(plane: Plane) -> None:
    probe = {"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1}
    manifest = pod("deaf", "sleep", "60", container={"readinessProbe": probe})
    plane.grange("apply", "-f", "-", stdin=manifest)

    def is_reported() -> bool:
        return "Unhealthy" in plane.grange("describe", "pod", "deaf")

    eventually(is_reported, "an Unhealthy event")
    assert plane.grange("get", "pod", "deaf").split("\n")[1].split()[1] == "0/1"
    plane.grange("delete", "pod", "deaf")


def test_a_pod_that_fits_nowhere_shows_why(plane: Plane) -> None:
    huge = pod("huge", "true", container={"resources": {"requests": {"cpu": "1000"}}})
    plane.grange("apply", "-f", "-", stdin=huge)
    message = "0/1 nodes are available: 1 Insufficient cpu"
    eventually(lambda: message in plane.grange("describe", "pod", "huge"), "it is unschedulable")
    reported = plane.grange("wait", "pod/huge", "--timeout", "2s", code=1)
    assert message in reported
    plane.grange("delete", "pod", "huge")


def test_a_stale_write_and_a_duplicate_are_conflicts(plane: Plane, tmp_path: Path) -> None:
    kubectl = find()
    import subprocess

    def run(*words: str, text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(kubectl), "--kubeconfig", str(plane.kubeconfig), *words, "-f", "-"],
            check=False,
            capture_output=True,
            text=True,
            input=f"---\n{text}",  # some kubectl take what begins with a brace for JSON
            timeout=LIMIT_S,
        )

    manifest = CONFIGMAP % ("twice", "{a: '1'}")
    assert run("create", text=manifest).returncode == 0
    duplicate = run("create", text=manifest)
    assert duplicate.returncode == 1
    assert "AlreadyExists" in duplicate.stderr
    held = plane.get("cm", "twice")
    held["data"] = {"a": "2"}
    assert run("replace", text=json.dumps(held)).returncode == 0
    held["data"] = {"a": "3"}
    stale = run("replace", text=json.dumps(held))
    assert stale.returncode == 1
    assert "Conflict" in stale.stderr
    assert plane.get("cm", "twice")["data"] == {"a": "2"}


def test_a_wrong_token_is_unauthorized_and_not_repeated(plane: Plane, tmp_path: Path) -> None:
    text = plane.kubeconfig.read_text()
    token = next(line.split()[1] for line in text.splitlines() if "token:" in line)
    wrong = tmp_path / "kubeconfig"
    wrong.write_text(text.replace(token, "not-the-token"))
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "grange", "get", "pods", "--kubeconfig", str(wrong)],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 1
    assert "Unauthorized" in done.stderr
    assert "not-the-token" not in done.stderr
