"""Evidence of real sessions: logs, artifacts, figures and barriers, from real processes."""

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.planes import LIMIT_S

from grange.api.kinds.testsession import FINAL_PHASES
from grange.evidence import session_client
from grange.testing.embedded import Cluster, cluster

pytestmark = pytest.mark.e2e

CLIENT = session_client.__file__
SERVER = f"""
import os, subprocess, sys, time
print("listening", flush=True)
subprocess.run([sys.executable, {CLIENT!r}, "barrier", "warm", "2"], check=True)
open(os.environ["GRANGE_ARTIFACTS"] + "/server.txt", "w").write("from the server")
print("serving", flush=True)
time.sleep(600)
"""
DRIVER = f"""
import json, os, subprocess, sys
run = lambda *words: subprocess.run([sys.executable, {CLIENT!r}, *words], check=True)
run("barrier", "warm", "2")
place = os.environ["GRANGE_ARTIFACTS"]
open(place + "/kept.txt", "w").write("100 %s")
os.symlink("/etc/passwd", place + "/link")
with open(place + "/core", "wb") as core:
    core.truncate(10 * 1024**3)
open(place + "/upload", "w").write("by hand")
run("put", place + "/upload", "--name", "sent/upload.txt")
print(json.dumps({{"latency": {{"p99": 2.5}}}}), flush=True)
print("done", flush=True)
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def plane() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


def component(program: str, **more: Any) -> dict[str, Any]:
    return {"image": "python", "command": [sys.executable, "-c", program], **more}


def run(plane: Cluster, name: str, code: int = 0) -> dict[str, Any]:
    """The session when it has ended."""
    spec = {
        "driver": component(DRIVER, env=[{"name": "CODE", "value": str(code)}]),
        "servers": [component(SERVER)],
        "testName": "bench",
        "evidence": {"metrics": [{"name": "p99", "jsonPath": "{.latency.p99}", "unit": "ms"}]},
    }
    meta = {"name": name, "namespace": "default"}
    plane.create(
        {
            "apiVersion": "grange.dev/v1alpha1",
            "kind": "TestSession",
            "metadata": meta,
            "spec": spec,
        }
    )

    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        found = plane.get("testsession", name)
        if (found.get("status") or {}).get("phase") in FINAL_PHASES:
            return found
        time.sleep(0.1)
    raise AssertionError(plane.get("testsession", name))


@pytest.mark.parametrize(("name", "code", "verdict"), [("good", 0, "Passed"), ("bad", 3, "Failed")])
def test_evidence_is_kept_when_pods_are_gone(
    plane: Cluster, name: str, code: int, verdict: str
) -> None:
    status = run(plane, name, code)["status"]
    assert status["verdict"] == verdict, status
    assert [(item["name"], item["value"]) for item in status["metrics"]] == [("p99", 2.5)]
    message = status["evidence"]["message"]
    assert "artifact 'link' is not kept: it is a symbolic link" in message
    assert "artifact 'core' is not kept: it has 10737418240 bytes" in message
    assert plane.list("pod") == []
    url = status["evidence"]["url"]
    files = {item["path"]: item["size"] for item in json.loads(read(plane, url))["files"]}
    assert files["artifacts/0/driver/kept.txt"] == 6
    assert files["artifacts/0/driver/sent/upload.txt"] == 7
    assert files["artifacts/0/server/server.txt"] == 15
    assert not [path for path in files if path.endswith(("/link", "/core"))]
    assert b"done\n" in read(plane, f"{url}/logs/0/{name}-driver/main.log")
    assert b"serving\n" in read(plane, f"{url}/logs/0/{name}-server/main.log")
    record = json.loads(read(plane, f"{url}/session.json"))
    assert (record["verdict"], record["testName"]) == (verdict, "bench")
    assert record["result"] == {"latency": {"p99": 2.5}}


def read(plane: Cluster, url: str) -> bytes:
    """What the session service has, for those who may use the API."""
    token = (plane.data_dir / "pki" / "token").read_text().strip()
    context = ssl.create_default_context(cafile=str(plane.data_dir / "pki" / "ca.crt"))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310  ours
    with urllib.request.urlopen(request, context=context, timeout=LIMIT_S) as response:  # noqa: S310  ours
        found: bytes = response.read()
        return found
