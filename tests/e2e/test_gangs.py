"""Gangs of real processes, created with kubectl: whole or not at all."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S, Plane, eventually

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent
GROUP = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: crew}
spec: {minMember: 3}
"""
MEMBER = """
---
apiVersion: v1
kind: Pod
metadata:
  name: crew-%d
  labels: {scheduling.x-k8s.io/pod-group: crew}
spec:
  containers:
  - name: main
    command: [sleep, "1000"]
"""


@pytest.fixture(scope="module")
def binary() -> str:
    found = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "get_kubectl.py")],
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.strip().splitlines()[-1]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    with Plane(tmp_path / "data", nodes=2) as made:
        yield made


def test_a_gang_from_kubectl_starts_with_its_last_member(plane: Plane, binary: str) -> None:
    def kubectl(*words: str, stdin: str = "", ok: bool = True) -> str:
        done = subprocess.run(
            [binary, "--kubeconfig", str(plane.kubeconfig), *words],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "HOME": str(plane.directory)},
        )
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    def status() -> dict[str, object]:
        found = json.loads(kubectl("get", "podgroup", "crew", "-o", "json"))
        return dict(found.get("status") or {})

    refused = kubectl(
        "apply", "-f", "-", stdin=GROUP.replace("minMember: 3", "minMember: 0"), ok=False
    )
    assert "spec.minMember" in refused
    kubectl("apply", "-f", "-", stdin=GROUP + MEMBER % 0 + MEMBER % 1)
    eventually(lambda: status().get("pending") == 2, "the group counts its members")
    shown = kubectl("get", "pg")
    assert shown.split()[:5] == ["NAME", "PHASE", "MINMEMBER", "SCHEDULED", "RUNNING"]
    assert "Pending" in shown
    reported = json.loads(kubectl("get", "pod", "crew-0", "-o", "json"))["status"]["conditions"]
    assert [item["message"] for item in reported if item["type"] == "PodScheduled"] == [
        "waits until 3 pods of pod group default/crew exist"
    ]
    kubectl("apply", "-f", "-", stdin=MEMBER % 2)
    eventually(lambda: status().get("phase") == "Running", "all three run")
    assert status()["running"] == 3
    assert "Scheduled" in kubectl("describe", "pg", "crew")
