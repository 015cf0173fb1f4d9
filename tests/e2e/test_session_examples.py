"""The examples of test sessions, and leases by hand: verdicts, logs of what failed, machines free again."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually, pod

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "sessions"
PACKAGES = EXAMPLES.parents[1] / ".cache" / "jobs" / "bin"  # made by make e2e
HTTP, GRPC = str(EXAMPLES / "http" / "http-load.yaml"), str(EXAMPLES / "grpc" / "grpc-bench.yaml")
POOLS = ("--pool", "drivers=1", "--pool", "workers=3")


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plane]:
    """A control plane with two pools, whose pods find the packages of the examples."""
    monkeypatch.setenv("PATH", f"{PACKAGES}:{os.environ['PATH']}")
    made = Plane(tmp_path / "data", nodes=4, words=POOLS)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def session(plane: Plane, name: str) -> dict[str, Any]:
    """The status of a session."""
    return dict(plane.get("ts", name).get("status") or {})


def pools(plane: Plane) -> dict[str, dict[str, Any]]:
    """The pools by name."""
    found = json.loads(plane.grange("lease", "pools", "-o", "json"))["pools"]
    return {item["name"]: item for item in found}


def all_free(plane: Plane) -> bool:
    """Whether no machine is in use."""
    return {name: (item["free"], item["nodes"]) for name, item in pools(plane).items()} == {
        "drivers": (1, 1),
        "workers": (3, 3),
    }


def log(kept: Path, component: str) -> str:
    """What a component of the session ``run`` wrote, as it is kept."""
    return (kept / "run" / "logs" / f"run-{component}" / "main.log").read_text()


def start(plane: Plane, *words: str) -> "subprocess.Popen[str]":
    """A verb in the background."""
    return subprocess.Popen(
        [*GRANGE, *words, "--kubeconfig", str(plane.kubeconfig)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes(plane: Plane, program: str) -> list[int]:
    """Processes of pods whose command line has these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = (entry / "cwd").readlink().is_relative_to(plane.directory.resolve())
        except (OSError, ValueError):
            continue
        if inside and words.strip().endswith(program):
            found.append(int(entry.name))
    return sorted(found)


@pytest.mark.parametrize(
    ("manifest", "figure"), [(HTTP, "throughput"), (GRPC, "qps")], ids=["http", "grpc"]
)
def test_example_passes_with_its_figures(
    plane: Plane, tmp_path: Path, manifest: str, figure: str
) -> None:
    kept, report = tmp_path / "kept", tmp_path / "report.xml"
    words = ("--name", "run", "--set", "spec.scenario.seconds=1")
    plane.grange("test", "run", manifest, *words, "--junit", str(report), "--artifacts", str(kept))
    status = session(plane, "run")
    assert (status["verdict"], status["phase"]) == ("Passed", "Succeeded")
    result = json.loads(log(kept, "driver").splitlines()[-1])
    assert result[figure] > 0
    nodes = [item["node"] for item in status["components"]]
    assert len(set(nodes)) == 4
    assert report.read_text().count("<testcase ") == 1
    logs = sorted(path.parent.name for path in kept.rglob("main.log"))
    assert logs == ["run-client-0", "run-client-1", "run-driver", "run-server"]
    assert all_free(plane)


@pytest.mark.parametrize("manifest", [HTTP, GRPC], ids=["http", "grpc"])
def test_failing_server_fails_the_test_with_its_log(
    plane: Plane, tmp_path: Path, manifest: str
) -> None:
    printed = plane.grange(
        *("test", "run", manifest, "--name", "run", "--artifacts", str(tmp_path / "kept")),
        *("--set", "spec.servers[0].env[FAIL_AFTER]=50"),
        code=1,
    )
    status = session(plane, "run")
    assert (status["verdict"], status["phase"]) == ("Failed", "Failed")
    assert "after 50 " in printed, printed
    assert "after 50 " in log(tmp_path / "kept", "server")
    eventually(lambda: all_free(plane), "free machines")


@pytest.mark.parametrize("worker", ["server", "client"])
def test_killed_worker_ends_the_session_with_its_log(
    plane: Plane, tmp_path: Path, worker: str
) -> None:
    component = next(item for item in ("server", "client-0") if item.startswith(worker))
    words = ("--name", "run", "--set", "spec.scenario.seconds=30")
    running = start(plane, "test", "run", HTTP, *words, "--artifacts", str(tmp_path / "kept"))
    try:
        eventually(lambda: processes(plane, "app/driver.py") != [], "a driver")
        logs = ("logs", f"run-{component}", "--kubeconfig", str(plane.kubeconfig))
        eventually(lambda: "listening on" in plane.cli.run(*logs).stdout, "its first line")
        os.kill(processes(plane, f"app/{worker}.py")[0], signal.SIGKILL)
        printed, _ = running.communicate(timeout=LIMIT_S)
    finally:
        running.kill()
    assert running.returncode in {1, 2}, printed
    assert "exit code 137" in printed, printed
    status = session(plane, "run")
    assert status["verdict"] in {"Failed", "Error"}
    assert "listening on" in log(tmp_path / "kept", component)
    assert status["events"][-1]["type"] == "ERROR"
    eventually(lambda: all_free(plane), "free machines")
    assert processes(plane, ".py") == []


def test_lease_keeps_other_pods_away(plane: Plane) -> None:
    eventually(lambda: len(pools(plane)) == 2, "pools")
    plane.grange("lease", "acquire", "--pool", "workers=3", "--name", "mine")
    assert len(plane.get("ml", "mine")["status"]["machines"]) == 3
    leased = pools(plane)["workers"]
    assert (leased["free"], leased["leased"]) == (0, 3)
    assert [*leased["holders"].values()] == [3]
    other = {"nodeSelector": {"pool": "workers"}}
    plane.grange("apply", "-f", "-", stdin=pod("other", "sleep", "1000", **other))
    plane.grange("wait", "pod/other", "--timeout", "3s", code=1)
    eventually(lambda: "machine-lease" in plane.grange("why", "pod/other"), "the reason")
    plane.grange("lease", "release", "mine")
    plane.grange("wait", "pod/other")
    eventually(lambda: pools(plane)["workers"]["leased"] == 0, "no lease")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_held_machines_are_released_with_the_command(plane: Plane, number: int) -> None:
    eventually(lambda: len(pools(plane)) == 2, "pools")
    words = ("lease", "acquire", "--pool", "workers=2", "--ttl", "9s", "--kubeconfig")
    held = subprocess.Popen(
        [
            *GRANGE,
            *words,
            str(plane.kubeconfig),
            "--",
            "sh",
            "-c",
            "echo $GRANGE_NODES; exec sleep 999",
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert held.stdout is not None
        assert len(held.stdout.readline().split(",")) == 2
        assert pools(plane)["workers"]["leased"] == 2
        held.send_signal(number)
        assert held.wait(LIMIT_S) == (-9 if number == signal.SIGKILL else 130)
        held.stdout.close()
        eventually(lambda: all_free(plane), "free machines")
    finally:
        with suppress(ProcessLookupError):  # what a killed command has left is in its group
            os.killpg(held.pid, signal.SIGKILL)


def test_command_ends_when_its_lease_is_released(plane: Plane) -> None:
    eventually(lambda: len(pools(plane)) == 2, "pools")
    held = start_held(plane)
    try:
        assert held.stdout is not None
        held.stdout.readline()
        plane.grange("lease", "release", "mine")
        printed, _ = held.communicate(timeout=LIMIT_S)
        assert held.returncode == 1
        assert "ml/mine was released while it was in use" in printed
    finally:
        held.kill()


def start_held(plane: Plane) -> "subprocess.Popen[str]":
    """A command that holds a machine, with all that it prints on one stream."""
    words = ("lease", "acquire", "--pool", "drivers", "--name", "mine", "--ttl", "9s")
    return subprocess.Popen(
        [*GRANGE, *words, "--kubeconfig", str(plane.kubeconfig), "--", "sleep", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("stop", "go_on", "reason"),
    [
        (["pause"], ["resume"], "Paused"),
        (["drain-pool", "drivers"], ["undrain-pool", "drivers"], "PoolDraining"),
    ],
    ids=["pause", "drain"],
)
def test_leases_wait_until_granting_goes_on(
    plane: Plane, stop: list[str], go_on: list[str], reason: str
) -> None:
    """The machine is leased until the reason shows that the controller has seen the policy."""
    eventually(lambda: len(pools(plane)) == 2, "pools")
    plane.grange("lease", "acquire", "--pool", "drivers", "--name", "first")
    plane.grange("lease", *stop)
    waiting = start(plane, "lease", "acquire", "--pool", "drivers", "--name", "mine")
    try:

        def is_waiting() -> bool:
            leases = {item["metadata"]["name"]: item for item in plane.get("ml").get("items", [])}
            return "mine" in leases and (leases["mine"].get("status") or {}).get("reason") == reason

        eventually(is_waiting, f"a lease with the reason {reason}")
        plane.grange("lease", "release", "first")
        eventually(lambda: all_free(plane), "a free machine")
        assert is_waiting()
        assert waiting.poll() is None
        plane.grange("lease", *go_on)
        printed, _ = waiting.communicate(timeout=LIMIT_S)
        (machine,) = plane.get("ml", "mine")["status"]["machines"]
        assert waiting.returncode == 0
        assert machine["node"] in printed
    finally:
        waiting.kill()
    plane.grange("lease", "release", "mine")
    eventually(lambda: all_free(plane), "a free machine")


def test_dirty_machines_wait_for_a_user(plane: Plane) -> None:
    eventually(lambda: len(pools(plane)) == 2, "pools")
    words = ("--pool", "drivers", "--name", "mine", "--cleaning", "manual")
    plane.grange("lease", "acquire", *words)
    (machine,) = plane.get("ml", "mine")["status"]["machines"]
    plane.grange("lease", "release", "mine")
    eventually(lambda: pools(plane)["drivers"]["dirty"] == 1, "a dirty machine")
    plane.grange("lease", "acquire", "--pool", "drivers", "--timeout", "2s", code=1)
    plane.grange("lease", "clean", machine["node"])
    eventually(lambda: all_free(plane), "a clean machine")
