"""``grange install`` as people run it: kubectl and the official client read what it prints."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from tests.e2e import kubectl
from tests.e2e.planes import GRANGE, LIMIT_S, Plane

pytestmark = pytest.mark.e2e

WORDS = ("install", "--image", "registry.example/grange:1")


def grange(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*GRANGE, *words], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


@pytest.fixture(scope="module")
def printed() -> str:
    done = grange(*WORDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_kubectl_reads_every_document(printed: str, tmp_path: Path) -> None:
    """Without a cluster: ``label --local`` reads, changes and names what it finds."""
    file = tmp_path / "all.yaml"
    file.write_text(printed)
    done = subprocess.run(
        [
            *(str(kubectl.find()), "label", "--local", "--dry-run=client"),
            *("--kubeconfig=/dev/null", "-f", str(file), "a=b", "-o", "name"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    documents = [*yaml.safe_load_all(printed)]
    assert len(done.stdout.splitlines()) == len(documents)
    for line, document in zip(done.stdout.splitlines(), documents, strict=True):
        assert line.startswith(document["kind"].lower())
        assert line.endswith(f"/{document['metadata']['name']}")


def test_no_field_is_unknown_to_the_official_client(printed: str) -> None:
    """What it does not know it would drop on the way through its own types."""
    api = client.ApiClient()
    kinds = set()
    for document in yaml.safe_load_all(printed):
        kind = document["kind"]
        kinds.add(kind)
        read = api._ApiClient__deserialize(document, f"V1{kind}")
        written: Any = api.sanitize_for_serialization(read)
        assert written == document, kind
    assert {"CustomResourceDefinition", "Deployment", "ClusterRole", "RoleBinding"} <= kinds


def test_a_line_that_cannot_be_carried_out_is_a_usage_error() -> None:
    done = grange("install")
    assert (done.returncode, done.stdout) == (64, "")
    assert "--image: name the image to run. Grange publishes none" in done.stderr


def test_our_own_server_has_the_kinds_and_reports_them(tmp_path: Path) -> None:
    """There is nothing to install: CustomResourceDefinitions are for servers that lack our kinds."""
    plane = Plane(tmp_path / "data")
    try:
        plane.start()
        reported = plane.grange(
            "apply", "-f", "-", stdin=grange("install", "--only", "crds").stdout, code=1
        )
        assert "CustomResourceDefinition" in reported
        plane.grange("get", "grc")
    finally:
        plane.stop()
