"""Evidence that `grange controllers` keeps, of pods whose volumes it cannot read, over TLS."""

import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually

from grange.evidence import session_client

pytestmark = pytest.mark.e2e

CLIENT = session_client.__file__
SERVER = f"""
import os, subprocess, sys, time
subprocess.run([sys.executable, {CLIENT!r}, "barrier", "warm", "2"], check=True)
open("server.txt", "w").write("from the server")
subprocess.run([sys.executable, {CLIENT!r}, "put", "server.txt"], check=True)
print("serving", flush=True)
subprocess.run([sys.executable, {CLIENT!r}, "publish", "sent", "yes"], check=True)
time.sleep(600)
"""
DRIVER = f"""
import json, os, subprocess, sys
run = lambda *words: subprocess.run([sys.executable, {CLIENT!r}, *words], check=True)
run("barrier", "warm", "2")
run("subscribe", "sent", "--count", "1")
open(os.environ["GRANGE_ARTIFACTS"] + "/local.txt", "w").write("out of reach")
open("report.json", "w").write("[1]")
run("put", "report.json", "--name", "out/report.json")
print(json.dumps({{"p99": 2.5}}), flush=True)
"""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """An API with an agent; the controllers are in a process of the test."""
    made = Plane(tmp_path / "data", words=("--disable", "controllers"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def evidence(plane: Plane, tmp_path: Path) -> Iterator[Path]:
    directory, log = tmp_path / "evidence", tmp_path / "controllers.log"
    words = ["--kubeconfig", str(plane.kubeconfig), "--evidence-dir", str(directory)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*GRANGE, "controllers", *words], stdout=output, stderr=output, cwd=tmp_path
        )
    try:
        eventually(lambda: "evidence at https://" in log.read_text(), "the service is served")
        yield directory
    finally:
        process.terminate()
        assert process.wait(LIMIT_S) == 0, log.read_text()


def session() -> dict[str, Any]:
    def component(program: str) -> dict[str, Any]:
        return {"image": "python", "command": [sys.executable, "-c", program]}

    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {"name": "far"},
        "spec": {
            "driver": component(DRIVER),
            "servers": [component(SERVER)],
            "evidence": {"metrics": [{"name": "p99", "jsonPath": "{.p99}", "unit": "ms"}]},
        },
    }


def read(directory: Path, url: str, token: str = "") -> bytes:
    """A file of the service, whose certificate must be by the directory's authority."""
    token = token or (directory / "reader-token").read_text().strip()
    context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310  ours
    with urllib.request.urlopen(request, context=context, timeout=LIMIT_S) as response:  # noqa: S310  ours
        found: bytes = response.read()
        return found


def test_controllers_elsewhere_keep_logs_and_uploads(plane: Plane, evidence: Path) -> None:
    plane.grange("apply", "-f", "-", stdin=json.dumps(session()))
    eventually(lambda: "completionTime" in plane.get("ts", "far").get("status", {}), "it ends")
    status = plane.get("ts", "far")["status"]
    assert status["verdict"] == "Passed", status
    assert [(item["name"], item["value"]) for item in status["metrics"]] == [("p99", 2.5)]
    url = status["evidence"]["url"]
    assert re.fullmatch(r"https://127\.0\.0\.1:\d+/v1/sessions/[0-9a-f-]+/evidence", url)
    files = {item["path"]: item["size"] for item in json.loads(read(evidence, url))["files"]}
    assert files["artifacts/0/driver/out/report.json"] == 3
    assert files["artifacts/0/server/server.txt"] == 15
    assert not [path for path in files if path.endswith("local.txt")]
    assert read(evidence, f"{url}/artifacts/0/server/server.txt") == b"from the server"
    assert b"serving\n" in read(evidence, f"{url}/logs/0/far-server/main.log")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        read(evidence, url, "guessed")
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, timeout=LIMIT_S)  # noqa: S310  ours
    assert plane.get("pods")["items"] == []
