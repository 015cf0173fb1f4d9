"""``grange up`` and ``grange down`` as people use them, and what stands in their way."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually, pod, processes_with

from grange.app.daemon import default_interrupt

pytestmark = pytest.mark.e2e

_QUIET = ("--listen", "127.0.0.1:0", "--no-switch")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path / "data")
    try:
        yield made
    finally:
        made.stop()


def up(*words: str) -> "subprocess.CompletedProcess[str]":
    """``grange up`` that ends by itself."""
    return Plane.cli.run("up", *words, timeout_s=LIMIT_S)


def test_up_prints_address_and_writes_private_kubeconfig(plane: Plane) -> None:
    line = plane.start()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] in line
    assert plane.kubeconfig.stat().st_mode & 0o077 == 0
    assert plane.directory.stat().st_mode & 0o077 == 0
    assert "default" in plane.grange("get", "namespaces")


def test_nodes_are_registered_when_up_is_ready(plane: Plane) -> None:
    plane.nodes = 3
    plane.start()
    assert len(plane.get("nodes")["items"]) == 3


def test_detach_and_down_and_the_users_kubeconfig(tmp_path: Path) -> None:
    home = {**os.environ, "KUBECONFIG": str(tmp_path / "config")}
    data = str(tmp_path / "data")
    done = subprocess.run(
        [*GRANGE, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--detach"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=home,
    )
    assert done.returncode == 0, done.stderr
    assert "ready in" in done.stdout
    assert "context 'data' is now current" in done.stdout, "detached only when all is written"
    assert f"stop with grange down --data-dir {data}" in done.stdout
    try:
        config = yaml.safe_load((tmp_path / "config").read_text())
        assert config["current-context"] == "data"
        listed = subprocess.run(
            [*GRANGE, "get", "ns"], check=True, capture_output=True, text=True, env=home
        )
        assert "kube-system" in listed.stdout
    finally:
        # Without an argument it stops what the current context names.
        down = subprocess.run(
            [*GRANGE, "down"], check=False, capture_output=True, text=True, env=home
        )
    assert down.returncode == 0, down.stderr
    assert "stopping" in down.stderr, "pods may take their time"
    assert processes_with(data) == []
    again = subprocess.run(
        [*GRANGE, "down", "--data-dir", data], check=False, capture_output=True, text=True
    )
    assert again.returncode == 1
    assert data in again.stderr


def test_interrupting_the_start_in_the_background_leaves_nothing(tmp_path: Path) -> None:
    """A server may be ready before the signal is there; that was no interruption, so once more."""
    code = 0
    for attempt in range(5):
        data = tmp_path / str(attempt)
        words = ["--data-dir", str(data), "--listen", "127.0.0.1:0", "--no-switch", "--detach"]
        with default_interrupt():  # tests in the background ignore SIGINT, which is inherited
            starting = subprocess.Popen([*GRANGE, "up", *words])
        eventually((data / "up.log").exists, "the start of the server")
        starting.send_signal(signal.SIGINT)
        code = starting.wait(timeout=LIMIT_S)
        if code:
            break
        subprocess.run([*GRANGE, "down", "--data-dir", str(data)], check=True, capture_output=True)
    assert code == 130
    eventually(lambda: processes_with(str(tmp_path)) == [], "the end of the server")


def test_a_second_up_on_the_same_directory_is_refused(plane: Plane) -> None:
    plane.start()
    second = up("--data-dir", str(plane.directory), "--listen", "127.0.0.1:0", "--no-switch")
    assert second.returncode == 1
    assert str(plane.process.pid if plane.process else 0) in second.stderr
    assert f"grange down --data-dir {plane.directory}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = up("--data-dir", str(tmp_path / "d"), "--listen", f"127.0.0.1:{port}", "--no-switch")
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is in use" in done.stderr
    assert "--listen" in done.stderr


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = up("--data-dir", str(tmp_path / "file" / "data"), "--no-switch")
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


def test_children_import_nothing_from_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for name in ("secrets", "grange", "msgspec"):
        (tmp_path / "here" / f"{name}.py").write_text("raise SystemExit('planted')")
    data = str(tmp_path / "data")
    # The program itself is what the user names; its children are what we name.
    done = subprocess.run(
        [sys.executable, "-P", *GRANGE[1:], "up", "--data-dir", data, *_QUIET, "--detach"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=tmp_path / "here",
    )
    subprocess.run([*GRANGE, "down", "--data-dir", data], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "planted" not in done.stdout + done.stderr


def test_a_corrupt_database_is_named_and_left_alone(plane: Plane) -> None:
    plane.start()
    assert plane.stop() == 0
    database = plane.directory / "store" / "store.db"
    database.write_bytes(b"this is no database at all" * 100)
    done = up("--data-dir", str(plane.directory), "--listen", "127.0.0.1:0", "--no-switch")
    assert done.returncode == 1
    assert "store.db" in done.stderr
    assert "Traceback" not in done.stderr
    assert database.read_bytes().startswith(b"this is no database")


def test_a_database_of_a_newer_version_is_refused(plane: Plane) -> None:
    plane.start()
    assert plane.stop() == 0
    with sqlite3.connect(plane.directory / "store" / "store.db") as database:
        database.execute("PRAGMA user_version = 4711")
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'"):
            if table == "meta":
                database.execute("UPDATE meta SET value = 4711 WHERE key LIKE '%format%'")
    database.close()
    done = up("--data-dir", str(plane.directory), "--listen", "127.0.0.1:0", "--no-switch")
    assert done.returncode == 1
    assert "newer" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--disable", "kubelet"), 64, "kubelet"),
        (("--listen", "here:there"), 64, "HOST:PORT"),
        (("--nodes", "0"), 64, "--nodes"),
        (("--log-level", "loud"), 64, "warning"),
        (("--alert-webhook", "me"), 64, "--alert-webhook"),
        (("--agent-url", "ftp://h/a.whl"), 64, "--agent-url"),
        (("--scheduler-config", "/nowhere"), 1, "--scheduler-config /nowhere: No such file"),
        (("--scheduler-config", "/dev/null"), 1, "--scheduler-config /dev/null: needs exactly one"),
    ],
)
def test_nonsense_on_the_command_line_is_refused_by_name(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = up("--data-dir", str(tmp_path / "d"), "--no-switch", *words)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_acknowledged_objects_survive_a_kill(plane: Plane) -> None:
    plane.start()
    for name in ("first", "second"):
        manifest = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}"
        plane.grange("apply", "-f", "-", stdin=manifest)
    names = plane.grange("get", "configmaps", "-o", "name").split()
    plane.kill()
    plane.start()
    assert names == ["configmap/first", "configmap/kube-root-ca.crt", "configmap/second"]
    assert plane.grange("get", "configmaps", "-o", "name").split() == names


def sleeper(plane: Plane) -> tuple[str, ...]:
    """A program that differs from every other on this machine."""
    return (sys.executable, "-c", f"import time; time.sleep(3600) # sleeper {plane.directory}")


def programs(plane: Plane) -> list[int]:
    return processes_with(f"# sleeper {plane.directory}")


def test_an_address_in_use_ends_no_program_that_was_left_running(plane: Plane) -> None:
    plane.start()
    plane.grange("apply", "-f", "-", "--wait", stdin=pod("stays", *sleeper(plane)))
    before = programs(plane)
    plane.kill()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = up("--data-dir", str(plane.directory), "--listen", address, "--no-switch")
    assert done.returncode == 1
    assert before
    assert programs(plane) == before
    plane.start()
    assert programs(plane) == before
    assert plane.stop() == 0
    reported = plane.errors()
    assert "stopping: pods end first" in reported
    assert "stopped" in reported


def test_pods_survive_a_kill_of_the_server_and_are_never_doubled(plane: Plane) -> None:
    """SIGKILL of ``up`` leaves the process; the next ``up`` takes the very same one over."""
    program = sleeper(plane)
    plane.start()
    plane.grange("apply", "-f", "-", "--wait", stdin=pod("sleeper", *program))
    running = programs(plane)
    assert len(running) == 1
    plane.kill()
    assert programs(plane) == running
    plane.start()
    plane.grange(
        "wait",
        "pod/sleeper",
    )
    assert programs(plane) == running
    status = plane.get("pod", "sleeper")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0
    plane.grange("delete", "pod", "sleeper")
    eventually(lambda: programs(plane) == [], "the program ends with its pod")


def test_fewer_nodes_than_before_leave_nothing_behind(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data", nodes=2)
    try:
        plane.start()
        names = sorted(plane.grange("get", "nodes", "-o", "name").split())
        eventually(lambda: plane.grange("get", "nodes", "-o", "name").count("node/") == 2, "nodes")
        names = sorted(plane.grange("get", "nodes", "-o", "name").split())
        spec = {"nodeName": names[1].removeprefix("node/")}
        plane.grange("apply", "-f", "-", "--wait", stdin=pod("sleeper", *sleeper(plane), **spec))
        plane.kill()
        words = ("--data-dir", str(plane.directory), "--no-switch", "--nodes", "1")
        refused = up(*words)
        assert (refused.returncode, "--remove-nodes" in refused.stderr) == (64, True)
        plane.nodes, plane.words = 1, ("--remove-nodes",)
        plane.start()
        eventually(lambda: plane.grange("get", "nodes", "-o", "name").count("node/") == 1, "one")
        eventually(lambda: programs(plane) == [], "the lost node's program has ended")
        eventually(
            lambda: "No resources" in plane.grange("get", "pods"), "the lost node's pod is gone"
        )
    finally:
        plane.stop()


def test_nodes_without_their_agents_get_no_pod(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data", nodes=2, words=("--pool", "workers=2"))
    try:
        plane.start()
        eventually(lambda: pools(plane) == {"workers": 2}, "nodes")
        plane.stop()
        plane.words = ("--disable", "agent")
        plane.start()
        plane.grange("wait", "node", "--all", "--for", "condition=Ready=False", "--timeout", "20s")
        plane.stop()
        plane.words = ("--disable", "agent", "--remove-nodes")
        plane.start()
        assert "No resources" in plane.grange("get", "nodes")
        plane.stop()
        plane.words = ()
        plane.start()
        eventually(lambda: pools(plane) == {"workers": 2}, "nodes")
        plane.grange("wait", "node", "--all", "--for", "condition=Ready", "--timeout", "20s")
    finally:
        plane.stop()


def pools(plane: Plane) -> dict[str, int]:
    """How many nodes each pool has."""
    listed: list[Any] = json.loads(plane.grange("get", "nodes", "-o", "json"))["items"]
    return dict(Counter(item["metadata"]["labels"].get("pool", "") for item in listed))


def test_nodes_keep_their_pool_over_restarts(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data", nodes=4, words=("--pool", "drivers=1", "--pool", "workers=3"))
    try:
        plane.start()
        eventually(lambda: pools(plane) == {"drivers": 1, "workers": 3}, "pools")
        driver = plane.grange("get", "nodes", "-l", "pool=drivers", "-o", "name").split()
        plane.kill()
        plane.words = ()
        plane.start()
        assert pools(plane) == {"drivers": 1, "workers": 3}
        plane.stop()
        plane.words = ("--pool", "drivers=2", "--pool", "workers=1")
        plane.start()
        eventually(lambda: pools(plane) == {"drivers": 2, "workers": 1, "": 1}, "new sizes")
        drivers = plane.grange("get", "nodes", "-l", "pool=drivers", "-o", "name").split()
        assert set(driver) < set(drivers)
    finally:
        plane.stop()


def test_down_leaves_no_process_behind(plane: Plane) -> None:
    program = sleeper(plane)
    plane.start()
    plane.grange("apply", "-f", "-", "--wait", stdin=pod("sleeper", *program))
    assert len(programs(plane)) == 1
    assert plane.stop() == 0
    assert processes_with(str(plane.directory)) == []
    plane.start()

    def restarts() -> int:
        status = plane.get("pod", "sleeper")["status"]["containerStatuses"][0]
        return int(status["restartCount"])

    # The pod is Ready at first by what was stored before: only the count shows the new start.
    eventually(lambda: restarts() == 1, "the program starts again")
    plane.grange(
        "wait",
        "pod/sleeper",
    )
