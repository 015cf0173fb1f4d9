"""Further machines as processes: how they join, what they run, and what they are refused."""

import asyncio
import contextlib
import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually, pod

import grange
from grange.app.agent_settings import AgentSettings
from grange.app.certificate_process import CertificateProcess
from grange.app.joined_node import serve_node
from grange.app.node_credentials import JoinFailed, JoinTarget, NodeCredentials
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.offload import Inline, Threads
from grange.sim.skewed_clock import SkewedClock

pytestmark = pytest.mark.e2e
WRITES_LINES = "echo started; while sleep 0.2; do echo here; done"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    directory = tmp_path_factory.mktemp("join")
    made = Plane(directory / "data", words=("--audit-log", str(directory / "audit.log")))
    made.start()
    yield made
    made.stop()


def agent(plane: Plane, directory: Path, *words: str) -> "subprocess.Popen[str]":
    """The command that the plane prints, with more words."""
    printed = shlex.split(plane.grange("token", "create"))
    assert printed[0] == "grange"
    return started(directory, *printed[1:], *words)


def started(directory: Path, *words: str) -> "subprocess.Popen[str]":
    # A pipe would be held open by the programs that outlive the agent.
    with directory.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            [*GRANGE, *words, "--data-dir", str(directory)],
            stdout=log,
            stderr=log,
            text=True,
        )


def ended(child: "subprocess.Popen[str]", directory: Path) -> tuple[int, str]:
    code = child.wait(LIMIT_S)
    return code, directory.with_suffix(".log").read_text()


def ready(plane: Plane, name: str) -> bool:
    for node in plane.get("nodes")["items"]:
        if node["metadata"]["name"] == name:
            conditions = node["status"].get("conditions", [])
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return False


def kubectl_exec(plane: Plane, name: str, *command: str, stdin: str = "") -> tuple[int, str]:
    words = [str(find()), "--kubeconfig", str(plane.kubeconfig), "exec", "-i", name, "--", *command]
    done = subprocess.run(
        words, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return done.returncode, done.stdout


def restarts(plane: Plane, name: str) -> int:
    status = plane.get("pod", name).get("status", {})
    if status.get("phase") != "Running":
        return -1
    return int(status["containerStatuses"][0]["restartCount"])


def test_machine_joins_runs_pods_and_returns_without_doubles(plane: Plane, tmp_path: Path) -> None:
    capacity = ("--capacity", "cpu=1,memory=1Gi", "--label", "disk=ssd")
    words = ("--node-name", "worker", *capacity)
    child = agent(plane, tmp_path / "agent", *words)
    try:
        eventually(lambda: ready(plane, "worker"), "the node is Ready")
        labels = plane.get("node", "worker")["metadata"]["labels"]
        assert labels["disk"] == "ssd"
        plane.grange(
            *("apply", "-f", "-"),
            stdin=pod("far", "sh", "-c", WRITES_LINES, nodeSelector={"disk": "ssd"}),
        )
        eventually(lambda: restarts(plane, "far") == 0, "the pod runs")
        eventually(lambda: "here" in plane.grange("logs", "far", "--tail", "1"), "it has output")
        assert "has not been restarted" in plane.grange("logs", "far", "--previous", code=1)
        assert kubectl_exec(plane, "far", "cat", stdin="through\n") == (0, "through\n")
        assert kubectl_exec(plane, "far", "sh", "-c", "exit 3")[0] == 3
        child.kill()
        child.wait(LIMIT_S)
        server = json.loads(plane.grange("token", "create", "-o", "json"))["server"]
        child = started(tmp_path / "agent", "agent", "--server", server, *words)
        log = tmp_path / "agent.log"
        eventually(lambda: "node worker of" in log.read_text(), "the agent is there again")
        assert restarts(plane, "far") == 0
        for path in (tmp_path / "agent" / "pki").iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
    finally:
        child.send_signal(signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--token", "abcdef.0123456789abcdef"), "it is wrong or has ended"),
        (("--ca-hash", "sha256:" + "0" * 64), "another server than the token is of"),
        ((), "choose another name with --node-name"),
    ],
)
def test_machine_is_refused_with_a_remedy(
    plane: Plane, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    eventually(lambda: bool(plane.get("nodes")["items"]), "the plane has its own node")
    local = plane.get("nodes")["items"][0]["metadata"]["name"]
    words = words or ("--node-name", local)
    code, errors = ended(agent(plane, tmp_path / "agent", *words), tmp_path / "agent")
    assert code == 1
    assert why in errors
    assert len(errors.splitlines()) == 1, errors


def test_deleted_token_joins_no_machine(plane: Plane, tmp_path: Path) -> None:
    token = json.loads(plane.grange("token", "create", "-o", "json"))["token"]
    plane.grange("token", "delete", token.partition(".")[0])
    child = agent(plane, tmp_path / "agent", "--token", token)
    code, errors = ended(child, tmp_path / "agent")
    assert (code, "it is wrong or has ended" in errors) == (1, True), errors


def test_token_for_one_use_joins_one_machine(plane: Plane, tmp_path: Path) -> None:
    printed = shlex.split(plane.grange("token", "create", "--once", "--node", "only"))
    second = tmp_path / "second"
    child = started(tmp_path / "first", *printed[1:])
    try:
        eventually(lambda: ready(plane, "only"), "the node is Ready")
        assert "used" in plane.grange("token", "list")
        items = json.loads(plane.grange("token", "list", "-o", "json"))["items"]
        assert [(item["node"], item["use"]) for item in items if item["use"] == "used"] == [
            ("only", "used")
        ]
        code, errors = ended(started(second, *printed[1:]), second)
        assert (code, "was used" in errors) == (1, True), errors
    finally:
        child.send_signal(signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0


def test_clock_that_is_wrong_is_measured(plane: Plane, tmp_path: Path) -> None:
    given = json.loads(plane.grange("token", "create", "-o", "json"))
    target = JoinTarget(given["server"], "late", given["token"], given["caHash"])

    async def join() -> None:
        clock = SkewedClock(LoopClock(), offset_s=-7200.0)
        with contextlib.closing(CertificateProcess(Inline())) as process:
            await NodeCredentials(tmp_path / "agent", process, clock).join(target)

    with pytest.raises(JoinFailed, match=r"is (120|119)m behind that of https://.*: set it"):
        asyncio.run(join())


async def test_agent_that_is_newer_neither_joins_nor_starts(
    plane: Plane, tmp_path: Path, clock: Clock, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = json.loads(plane.grange("token", "create", "-o", "json"))
    target = JoinTarget(given["server"], "newer", given["token"], given["caHash"])
    joined, fresh = tmp_path / "joined", tmp_path / "fresh"
    settings = AgentSettings(server=given["server"], data_dir=joined, node_name="newer")
    with (
        contextlib.closing(CertificateProcess(Inline())) as process,
        contextlib.closing(Threads("agent", 1)) as offload,
    ):
        await NodeCredentials(joined, process, clock).join(target)
        monkeypatch.setattr(grange, "__version__", "9.0.0")
        with pytest.raises(JoinFailed, match="an agent may not be newer; update the control plane"):
            await NodeCredentials(fresh, process, clock).join(target)
        with pytest.raises(JoinFailed, match="an agent may not be newer; update the control plane"):
            await serve_node(settings, process, asyncio.Event(), clock, log, offload)
    names = [item["metadata"]["name"] for item in plane.get("nodes")["items"]]
    assert "newer" not in names
    assert not NodeCredentials(fresh, process, clock).has_certificate("newer")


def audited(plane: Plane) -> list[dict[str, Any]]:
    lines = (plane.directory.parent / "audit.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_audit_log_names_who_did_what(plane: Plane) -> None:
    kubectl = [str(find()), "--kubeconfig", str(plane.kubeconfig)]
    for words, code in (
        (("create", "configmap", "audited", "--from-literal=key=swordfish"), 0),
        (("delete", "configmap", "audited", "--as=alice"), 1),
        (("get", "--raw", "/api/v1/namespaces/default/configmaps", "--token=wrong"), 1),
        (("delete", "configmap", "audited", "--wait=false"), 0),
    ):
        done = subprocess.run([*kubectl, *words], capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == code, done.stderr

    def found() -> list[tuple[str, str, str, int]]:
        return [
            (
                event["user"]["username"],
                event.get("impersonatedUser", {}).get("username", ""),
                event["verb"],
                event["responseStatus"]["code"],
            )
            for event in audited(plane)
            if event.get("objectRef", {}).get("resource") == "configmaps"
            and event["objectRef"].get("namespace") == "default"
            and event["userAgent"].startswith("kubectl")
        ]

    wanted = [
        ("grange:admin", "", "create", 201),
        ("grange:admin", "alice", "delete", 403),
        ("system:anonymous", "", "list", 401),
        ("grange:admin", "", "delete", 200),
    ]
    eventually(lambda: found() == wanted, f"the events are written: {found()}")
    text = (plane.directory.parent / "audit.log").read_text()
    assert "swordfish" not in text
    assert (plane.directory / "pki" / "token").read_text().strip() not in text
