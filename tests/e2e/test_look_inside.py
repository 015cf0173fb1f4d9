"""Looking into running pods with the clients that people have: kubectl and the Python client."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.e2e.kubectl import Kubectl, find
from tests.e2e.planes import Plane, eventually, pod, processes_with
from tests.e2e.test_cluster import run_client
from tests.support.own_port import own_port

pytestmark = pytest.mark.e2e
LIMIT_S = 240.0
PORT = own_port(0)
PROBE = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"

ON_TERMINAL = """
until stty size | grep -q '^33 111'; do sleep 0.02; done; echo first size
until stty size | grep -q '^20 90'; do sleep 0.02; done; echo second size
trap 'exit 5' INT
read line; echo read $line
while :; do sleep 0.02; done
"""

PORTS = [{"name": "http", "port": 80, "targetPort": PORT}, {"name": "none", "port": 9999}]
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": PORTS},
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("look") / "data")
    made.start()
    ticks = "while :; do echo tick; sleep 0.1; done"
    echo = {"name": "echo", "stdin": True, "stdinOnce": True, "command": ["cat"]}
    idle = {"name": "main", "command": ["sh", "-c", ticks]}
    serve = [sys.executable, "-m", "http.server", str(PORT), "--bind", "127.0.0.1"]
    probe = {"exec": {"command": [sys.executable, "-c", PROBE]}}
    server = {"name": "server", "command": serve, "readinessProbe": probe}
    manifest = pod("web", "sleep", "600", containers=[idle, echo, server], restartPolicy="Never")
    labelled = json.loads(manifest) | {"metadata": {"name": "web", "labels": {"app": "web"}}}
    made.grange("apply", "-f", "-", "--wait", stdin=json.dumps(labelled))
    yield made
    made.stop()


@pytest.fixture
def kubectl(plane: Plane, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, plane.kubeconfig)


async def test_kubectl_runs_commands(kubectl: Kubectl) -> None:
    script = "cat; echo err >&2; exit 7"
    found = await kubectl("exec", "-i", "web", "-c", "main", "--", "sh", "-c", script, stdin="in\n")
    assert (found.code, found.out, found.err.splitlines()[0]) == (7, "in\n", "err")


async def test_kubectl_explains_what_cannot_run(kubectl: Kubectl) -> None:
    missing = await kubectl("exec", "web", "-c", "main", "--", "nonesuch")
    assert missing.code == 127
    assert 'program "nonesuch" not found' in missing.err
    other = await kubectl("exec", "web", "-c", "other", "--", "ls")
    assert other.err == (
        "Error from server (BadRequest): container other is not valid for pod web\n"
    )


async def test_kubectl_copies_files_both_ways(kubectl: Kubectl, tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    (tmp_path / "blob").write_bytes(content)
    await kubectl.ok("cp", "-c", "main", str(tmp_path / "blob"), "web:copied")
    await kubectl.ok("cp", "-c", "main", "web:copied", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


async def test_kubectl_attaches_to_output_and_input(kubectl: Kubectl) -> None:
    process = await kubectl.start("attach", "web", "-c", "main")
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await process.stdout.readline() == b"tick\n"
    process.kill()
    await process.wait()
    echoed = await kubectl.ok("attach", "-i", "web", "-c", "echo", stdin="piped\n")
    assert echoed.out == "piped\n"


@pytest.mark.parametrize("program", ["kubectl", "grange"])
def test_commands_have_a_terminal(plane: Plane, program: str) -> None:
    with on_terminal(plane, program) as (process, ours):
        _read_until(ours, "first size")
        termios.tcsetwinsize(ours, (20, 90))
        process.send_signal(signal.SIGWINCH)
        _read_until(ours, "second size")
        os.write(ours, b"typed\n")
        _read_until(ours, "read typed")
        os.write(ours, b"\x03")
        assert process.wait(LIMIT_S) == 5


def test_terminal_is_restored_on_a_signal(plane: Plane) -> None:
    with on_terminal(plane, "grange") as (process, ours):
        _read_until(ours, "first size")
        assert not termios.tcgetattr(ours)[3] & termios.ECHO
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert termios.tcgetattr(ours)[3] & termios.ECHO


@contextmanager
def on_terminal(plane: Plane, program: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """``exec -it`` of a program and its terminal of 111 by 33 characters."""
    begin = [str(find())] if program == "kubectl" else [sys.executable, "-m", "grange"]
    words = [*begin, "exec", "-it", "web", "-c", "main", "--", "sh", "-c", ON_TERMINAL]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (33, 111))
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def test_verbs_run_commands(plane: Plane) -> None:
    done = plane.cli.run(
        *("exec", "-i", "web", "-c", "main", "--kubeconfig", str(plane.kubeconfig)),
        *("--", "sh", "-c", "tr a-z A-Z; echo err >&2; exit 7"),
        stdin="in",
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "IN", "err\n")
    assert "no container x; it has main, echo, server" in plane.grange(
        "attach", "web", "-c", "x", code=1
    )
    assert "it takes no input" in plane.grange("attach", "-i", "web", "-c", "main", code=1)


async def test_command_ends_with_its_client(kubectl: Kubectl) -> None:
    words = ("sh", "-c", "echo begun; sleep 6543.21")
    process = await kubectl.start("exec", "web", "-c", "main", "--", *words)
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await process.stdout.readline() == b"begun\n"
    process.kill()
    await process.wait()
    eventually(lambda: not processes_with("6543.21"), "the command ends", LIMIT_S)


async def test_kubectl_forwards_ports(kubectl: Kubectl) -> None:
    """The server listens on loopback only."""
    await kubectl.ok(
        "exec", "web", "-c", "server", "--", "sh", "-c", "head -c 3000000 /dev/zero > big"
    )
    process = await kubectl.start("port-forward", "pod/web", f":{PORT}")
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        first = (await process.stdout.readline()).decode()
    port = int(first.split("127.0.0.1:")[1].split()[0])

    def size() -> int:
        with urlopen(f"http://127.0.0.1:{port}/big", timeout=LIMIT_S) as found:
            return len(found.read())

    sizes = await asyncio.gather(*(asyncio.to_thread(size) for _ in range(3)))
    process.terminate()
    await process.wait()
    assert sizes == [3_000_000] * 3


async def test_kubectl_explains_ports_that_are_closed(kubectl: Kubectl) -> None:
    process = await kubectl.start("port-forward", "pod/web", ":9999")
    assert process.stdout is not None
    first = (await process.stdout.readline()).decode()
    port = int(first.split("127.0.0.1:")[1].split()[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.close()
    async with asyncio.timeout(LIMIT_S):
        _, errors = await process.communicate()
    assert b"port 9999: nothing in the pod listens on it; it listens on %d" % PORT in errors


def test_verb_copies_directories_both_ways(plane: Plane, tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    (tmp_path / "there" / "inner").mkdir(parents=True)
    (tmp_path / "there" / "inner" / "blob").write_bytes(content)
    (tmp_path / "there" / "link").symlink_to("inner/blob")
    copy = ("-c", "main")
    plane.grange("cp", str(tmp_path / "there"), "web:made", *copy)
    plane.grange("cp", str(tmp_path / "there" / "inner" / "blob"), "web:made", *copy)
    plane.grange("cp", "pod/web:made", str(tmp_path / "back"), *copy)
    assert (tmp_path / "back" / "inner" / "blob").read_bytes() == content
    assert (tmp_path / "back" / "blob").read_bytes() == content
    assert (tmp_path / "back" / "link").readlink() == Path("inner/blob")
    missing = plane.grange("cp", "web:missing", str(tmp_path / "x"), *copy, code=1)
    assert "cannot read missing: tar: ./missing: " in missing
    absent = plane.grange("cp", str(tmp_path / "x"), "web:made", *copy, code=1)
    assert "x: no such file or directory" in absent
    assert not (tmp_path / "x").exists()


def test_verb_forwards_ports_of_services(plane: Plane) -> None:
    plane.grange("apply", "-f", "-", stdin=json.dumps(SERVICE))
    with forwarding(plane, "svc/web", ":http", ":9999") as (process, ports):
        for _ in range(2):
            with urlopen(f"http://127.0.0.1:{ports[0]}/", timeout=LIMIT_S) as found:
                assert found.status == 200
        with pytest.raises(ConnectionError), urlopen(f"http://127.0.0.1:{ports[1]}/"):
            pass
        assert process.stderr is not None
        assert "port 9999: nothing in the pod listens on it" in process.stderr.readline()
        refused = plane.grange("port-forward", "web", f"{ports[0]}:{PORT}", code=1)
        assert f"cannot listen on 127.0.0.1 port {ports[0]}: " in refused
    assert "no port other; it has 80, http, 9999" in plane.grange(
        "port-forward", "svc/web", ":other", code=1
    )


@contextmanager
def forwarding(plane: Plane, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """``grange port-forward`` and its local ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "grange", "port-forward", *words, "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, [json.loads(process.stdout.readline())["port"] for _ in words[1:]]
    finally:
        process.terminate()
        process.communicate()


def test_official_client_looks_inside(plane: Plane) -> None:
    words = (str(plane.kubeconfig), "web", "main", str(PORT))
    assert run_client("official_stream.py", *words) == "ok\n"


def _read_until(terminal: int, ending: str) -> str:
    found = ""
    while ending not in found:
        assert select.select([terminal], [], [], LIMIT_S)[0], found
        found += os.read(terminal, 4096).decode()
    return found
