"""``grange test`` on a real control plane: verdicts, evidence on this side, interruption, pytest."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    words = ("--pool", "drivers=1", "--pool", "workers=2")
    with Plane(tmp_path_factory.mktemp("plane") / "data", nodes=4, words=words) as made:
        yield made


def manifest(path: Path, name: str, script: str, **spec: Any) -> str:
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {"name": name},
        "spec": {
            "driver": {"command": ["sh", "-c", script]},
            "servers": [{"command": ["sh", "-c", "echo serving; sleep 1000"]}],
            **spec,
        },
    }
    found = path / f"{name}.session.yaml"
    found.write_text(json.dumps(document))
    return str(found)


def sessions(plane: Plane) -> dict[str, str]:
    items = plane.get("ts").get("items", [])
    return {item["metadata"]["name"]: item["status"].get("verdict", "") for item in items}


def is_free(plane: Plane) -> bool:
    return not plane.get("pods").get("items")


def test_verdicts_are_exit_codes_with_logs_and_reports(plane: Plane, tmp_path: Path) -> None:
    good = manifest(tmp_path, "good", "echo to $QPS_WORKERS; echo done")
    text = plane.grange("test", "run", good)
    assert "[driver] to 127." in text
    assert "PASSED ts/good-" in text

    bad = manifest(tmp_path, "bad", "echo 100% broken; exit 3")
    logs, report = tmp_path / "logs", tmp_path / "report.xml"
    words = ("test", "run", bad, "--artifacts", str(logs), "--junit", str(report))
    text = plane.grange(*words, code=1)
    assert "  | 100% broken" in text
    (name,) = [item for item in sessions(plane) if item.startswith("bad-")]
    assert f"FAILED ts/{name}" in text
    kept = logs / name / "logs"
    assert (kept / f"{name}-driver" / "main.log").read_text() == "100% broken\n"
    assert (kept / f"{name}-server" / "main.log").read_text() == "serving\n"
    assert json.loads((logs / name / "session.json").read_text())["verdict"] == "Failed"
    assert ET.parse(report).getroot().get("failures") == "1"  # noqa: S314  our own
    assert "exit code 3" in plane.grange("why", f"ts/{name}")
    assert "FAILED ts/bad-" in plane.grange("test", "rerun", name, code=1)
    assert name in plane.grange("test", "list", "--verdict", "failed")
    assert is_free(plane)


def test_figures_outlive_their_sessions(plane: Plane, tmp_path: Path) -> None:
    """Compared with a run whose session is gone, or with the record of it that was kept."""
    metrics = {"metrics": [{"name": "p99", "jsonPath": "{.p99}", "better": "Lower"}]}
    script = """echo '{"p99": '$P99'}'"""
    driver = {"command": ["sh", "-c", script], "env": [{"name": "P99", "value": "2"}]}
    path = manifest(tmp_path, "figures", "", driver=driver, servers=[], evidence=metrics)
    run = ("test", "run", path, "--name")
    plane.grange(*run, "figures-1", "--artifacts", str(tmp_path / "logs"))
    plane.grange("delete", "ts/figures-1")
    worse = ("--set", "spec.driver.env[P99]=3", "--fail-on-regression")
    assert "p99 3  NotEnoughRuns: 2 runs are too few" in plane.grange(*run, "figures-2", *worse)
    baseline = ("--baseline", str(tmp_path / "logs" / "figures-1" / "session.json"))
    text = plane.grange(*run, "figures-3", *worse, *baseline, code=1)
    assert "FAILED ts/figures-3" in text
    assert "p99 3  Worse: 3 against 2" in text
    page = tmp_path / "page.html"
    plane.grange("test", "report", "figures-3", *baseline, "--file", str(page))
    assert "3 against 2" in page.read_text()


def test_what_never_gets_ready_is_infrastructure(plane: Plane, tmp_path: Path) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    server = {"command": ["sleep", "1000"], "readinessProbe": probe}
    spec = {"timeouts": {"provisionSeconds": 3}, "retries": {"infrastructure": 0}}
    path = manifest(tmp_path, "never", "true", servers=[server], **spec)
    text = plane.grange("test", "run", path, code=2)
    assert "ERROR ts/never-" in text
    assert "ProvisionTimeout" in text
    assert is_free(plane)
    refused = manifest(tmp_path, "refused", "true", timeouts={"runSeconds": -1})
    assert "runSeconds" in plane.grange("test", "run", refused, code=2)


def test_matrix_runs_in_queues(plane: Plane, tmp_path: Path) -> None:
    path = manifest(tmp_path, "cell", "echo size $SIZE; [ $SIZE != 2 ]", servers=[])
    words = ("--matrix", "spec.driver.env[SIZE]=1,2,3", "--concurrency", "2")
    text = plane.grange("test", "run", path, *words, code=1)
    assert "2 passed, 1 failed" in text
    assert "  | size 2" in text


def test_interruption_cancels_and_frees_everything(plane: Plane, tmp_path: Path) -> None:
    driver = {"pool": "drivers", "command": ["sh", "-c", "echo begun; sleep 1000"]}
    servers = [{"pool": "workers", "count": 2, "command": ["sleep", "1000"]}]
    path = manifest(tmp_path, "long", "", driver=driver, servers=servers)
    words = ["test", "run", path, "--artifacts", str(tmp_path), "--kubeconfig"]
    process = subprocess.Popen(
        [*GRANGE, *words, str(plane.kubeconfig)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        eventually(lambda: "long-" in str(running(plane)), "it runs")
        behind = manifest(tmp_path, "behind", "", driver=driver)
        waited = plane.grange("test", "run", behind, "--timeout", "15s", code=2)
        assert "WAIT  position 1" in waited
        assert "held by TestSession default/long-" in waited
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, out
    assert "Interrupted: cancelling 1 session" in out
    assert "CANCELLED ts/long-" in out
    assert is_free(plane)
    assert plane.get("ml").get("items", []) == []
    assert "machine-lease" not in json.dumps(plane.get("nodes"))


def test_pool_that_can_never_suffice_ends_at_once(plane: Plane, tmp_path: Path) -> None:
    servers = [{"pool": "workers", "count": 3, "command": ["sleep", "1000"]}]
    path = manifest(tmp_path, "many", "true", servers=servers)
    text = plane.grange("test", "run", path, code=2)
    assert "pool workers has 2 machines and 3 are requested" in text


def running(plane: Plane) -> list[str]:
    items = plane.get("ts").get("items", [])
    return [i["metadata"]["name"] for i in items if i.get("status", {}).get("phase") == "Running"]


def test_sessions_are_tests_of_pytest(plane: Plane, tmp_path: Path) -> None:
    manifest(tmp_path, "passes", "echo from the driver")
    manifest(tmp_path, "fails", "echo size ${{ size }}; exit ${{ size }}")
    (tmp_path / "fails.session.yaml").rename(tmp_path / "parametrized.yaml")
    (tmp_path / "test_own.py").write_text(
        "import pytest\n"
        "from grange.testing import SessionFailed\n"
        "def test_result(session_run):\n"
        "    with pytest.raises(SessionFailed, match='size 3'):\n"
        "        session_run('parametrized.yaml', set={'size': 3})\n"
        "    result = session_run('parametrized.yaml', set={'size': 0}, check=False)\n"
        "    assert result.verdict == 'Passed'\n"
        "    assert result.logs['driver'] == 'size 0\\n'\n"
        "def test_failure(session_run):\n"
        "    session_run('parametrized.yaml', set={'size': 5})\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--grange-sessions"),
            *("--grange-kubeconfig", str(plane.kubeconfig), "--rootdir", str(tmp_path), "."),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "1 failed, 2 passed" in text, text
    assert "passes.session.yaml::passes PASSED" in text
    assert "  | size 5" in text


def opened(plane: Plane, path: Path, name: str, programs: Path) -> subprocess.CompletedProcess[str]:
    """``grange test open`` where only some programs are there to show a page."""
    return subprocess.run(
        [*GRANGE, "test", "open", name, "--kubeconfig", str(plane.kubeconfig)],
        env={**os.environ, "PATH": str(programs), "TMPDIR": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_open_gives_the_page_to_the_browser(plane: Plane, tmp_path: Path) -> None:
    plane.grange("test", "run", manifest(tmp_path, "shown", "echo seen by a reader"))
    (name,) = [item for item in sessions(plane) if item.startswith("shown-")]
    programs, target = tmp_path / "programs", tmp_path / "shown.html"
    programs.mkdir()
    found = opened(plane, tmp_path, name, programs)
    assert found.returncode == 1
    assert "no browser could be started; open" in found.stderr
    browser = programs / "xdg-open"
    browser.write_text(
        f'#!/bin/sh\n/bin/cp "${{1#file://}}" {target}.part && /bin/mv {target}.part {target}\n'
    )
    browser.chmod(0o755)
    found = opened(plane, tmp_path, name, programs)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("opened ")
    eventually(target.exists, "the browser has the page")
    page = target.read_text()
    assert name in page
    assert "seen by a reader" in page
    assert opened(plane, tmp_path, "absent", programs).returncode == 1
