"""Pods from images on a real containerd: pulled, run, restarted, taken over and removed.

Collected where there is one: on a Debian system as root (see ``conftest``).
"""

import json
import os
import pty
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import LIMIT_S, Plane, eventually
from tests.support import containerd
from tests.support.containerd import BUSYBOX, Containerd
from tests.support.own_port import own_port

pytestmark = pytest.mark.e2e

WEB = "grange.test/web:1"
PORT = own_port(1)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    with containerd.running(tmp_path_factory.mktemp("containerd")) as made:
        made.add_image(WEB, ("/bin/httpd", "-f", "-p", str(PORT), "-h", "/etc"))
        yield made


def started(daemon: Containerd, directory: Path) -> Iterator[Plane]:
    made = Plane(directory / "data", words=("--cri-socket", str(daemon.socket)))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def plane(daemon: Containerd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    yield from started(daemon, tmp_path_factory.mktemp("plane"))


@pytest.fixture
def own_plane(daemon: Containerd, tmp_path: Path) -> Iterator[Plane]:
    """One that a test may kill."""
    yield from started(daemon, tmp_path)


def apply(plane: Plane, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    spec.setdefault("terminationGracePeriodSeconds", 1)
    plane.grange("apply", "-f", "-", stdin=json.dumps(body))


def status(plane: Plane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = plane.get("pod", name)["status"]
    return found


def container_status(plane: Plane, name: str) -> dict[str, Any]:
    [found] = status(plane, name).get("containerStatuses") or [{}]
    return dict(found)


def is_over(plane: Plane, name: str) -> bool:
    return status(plane, name).get("phase") in {"Succeeded", "Failed"}


def page() -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/hosts", timeout=LIMIT_S) as answer:
        text: str = answer.read().decode()
    return text


def test_an_image_names_its_program(own_plane: Plane, daemon: Containerd) -> None:
    """And it goes on under a control plane's successor; in the end nothing of it is left."""
    plane = own_plane
    listens = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
    apply(plane, "web", {"containers": [{"name": "main", "image": WEB, "readinessProbe": listens}]})
    plane.grange("wait", "pod/web", "--for", "condition=Ready")
    assert "web" in page()
    before = container_status(plane, "web")
    assert before["containerID"].startswith("containerd://")
    assert before["imageID"].startswith("sha256:")
    plane.kill()
    assert "web" in page()
    plane.start()
    plane.grange("wait", "pod/web", "--for", "condition=Ready")
    after = container_status(plane, "web")
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    plane.grange("delete", "pod/web")
    eventually(
        lambda: not (plane.directory / "cri" / "pods").exists() or not pods_on_disk(plane),
        "files go",
    )
    eventually(lambda: not daemon.containers(), "containers go")


def pods_on_disk(plane: Plane) -> list[Path]:
    return list((plane.directory / "cri" / "pods").iterdir())


def test_a_command_runs_in_its_image(plane: Plane) -> None:
    script = 'echo "$FROM_IMAGE $WHO"; cat /proc/1/comm; exit 3'
    main: dict[str, Any] = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]}
    main["env"] = [{"name": "WHO", "value": "me"}]
    apply(plane, "job", {"restartPolicy": "Never", "containers": [main]})
    eventually(lambda: status(plane, "job").get("phase") == "Failed", "it ends")
    ended = container_status(plane, "job")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert plane.grange("logs", "job").splitlines() == ["yes me", "sh"]
    plane.grange("delete", "pod/job")


def test_privileged_container_has_all_capabilities(plane: Plane) -> None:
    script = "grep CapEff /proc/self/status; test -e /dev/kmsg"
    found = {}
    for name, fields in (("plain", {}), ("mighty", {"securityContext": {"privileged": True}})):
        main = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script], **fields}
        apply(plane, name, {"restartPolicy": "Never", "containers": [main]})
        eventually(partial(is_over, plane, name), "its end")
        ended = container_status(plane, name)["state"]["terminated"]
        capabilities = int(plane.grange("logs", name).split()[1], 16)
        found[name] = (ended["exitCode"], bool(capabilities >> 21 & 1))  # CAP_SYS_ADMIN
        conditions = {item["type"] for item in status(plane, name)["conditions"]}
        assert "grange.dev/UnsupportedFields" not in conditions
        plane.grange("delete", f"pod/{name}")
    assert found == {"plain": (1, False), "mighty": (0, True)}


def test_containers_share_processes_if_asked_to(plane: Plane) -> None:
    containers = [
        {"name": name, "image": BUSYBOX, "command": ["sleep", seconds]}
        for name, seconds in (("one", "617"), ("other", "618"))
    ]
    apply(plane, "sharing", {"shareProcessNamespace": True, "containers": containers})
    plane.grange("wait", "pod/sharing", "--for", "condition=Ready")
    words = ("exec", "sharing", "-c", "other", "--kubeconfig", str(plane.kubeconfig), "--", "ps")
    seen = plane.cli.run(*words).stdout
    assert "sleep 617" in seen
    assert "sleep 618" in seen
    plane.grange("delete", "pod/sharing")


def test_commands_run_in_a_container(plane: Plane) -> None:
    main = {"name": "main", "image": BUSYBOX, "command": ["sleep", "600"]}
    apply(plane, "inside", {"containers": [main]})
    plane.grange("wait", "pod/inside", "--for", "condition=Ready")
    script = "cat; echo $FROM_IMAGE; exit 7"
    words = ("exec", "-i", "inside", "--kubeconfig", str(plane.kubeconfig), "--", "sh", "-c")
    done = plane.cli.run(*words, script, stdin="given\n")
    assert (done.returncode, done.stdout) == (7, "given\nyes\n")
    plane.grange("delete", "pod/inside")


def test_containers_can_be_looked_into(plane: Plane) -> None:
    main = {"name": "main", "image": WEB}
    apply(plane, "seen", {"containers": [main]})
    plane.grange("wait", "pod/seen", "--for", "condition=Ready")
    begin = [str(find()), "--kubeconfig", str(plane.kubeconfig), "exec", "seen"]
    ours, theirs = pty.openpty()
    on_terminal = 'test -t 0 && read line && echo "read $line" && exit 5'
    with subprocess.Popen(
        [*begin, "-it", "--", "sh", "-c", on_terminal], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.write(ours, b"typed\n")
        assert process.wait(LIMIT_S) == 5
    assert b"read typed" in os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    piped = [*begin, "-i", "--", "wc", "-c"]
    done = subprocess.run(piped, input=bytes(300_000), capture_output=True, check=True)
    assert done.stdout == b"300000\n"
    forward = subprocess.Popen(
        [*begin[:-2], "port-forward", "seen", f":{PORT}"], stdout=subprocess.PIPE, text=True
    )
    assert forward.stdout is not None
    try:
        local = int(forward.stdout.readline().split("127.0.0.1:")[1].split()[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/hosts", timeout=LIMIT_S) as answer:
            assert b"localhost" in answer.read()
    finally:
        forward.terminate()
        forward.communicate()
    plane.grange("delete", "pod/seen")


def test_processes_and_containers_share_a_node(plane: Plane) -> None:
    apply(plane, "process", {"containers": [{"name": "main", "command": ["sleep", "600"]}]})
    plane.grange("wait", "pod/process", "--for", "condition=Ready")
    assert container_status(plane, "process")["containerID"].startswith("process://")
    plane.grange("delete", "pod/process")


def test_a_container_that_crashes_is_restarted(plane: Plane) -> None:
    main = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "exit 4"]}
    apply(plane, "crash", {"containers": [main]})
    eventually(lambda: container_status(plane, "crash").get("restartCount", 0) >= 1, "a restart")
    ended = container_status(plane, "crash")["lastState"]["terminated"]
    assert ended["exitCode"] == 4
    plane.grange("delete", "pod/crash")


def test_an_image_that_cannot_be_pulled_shows_why(plane: Plane) -> None:
    apply(plane, "away", {"containers": [{"name": "main", "image": "127.0.0.1:1/away:1"}]})
    reasons = {"ErrImagePull", "ImagePullBackOff"}

    def waits() -> bool:
        waiting = container_status(plane, "away").get("state", {}).get("waiting", {})
        return waiting.get("reason") in reasons and "connection refused" in waiting["message"]

    eventually(waits, "the reason is shown")
    assert "connection refused" in plane.grange("why", "pod/away")
    plane.grange("delete", "pod/away")


def test_a_node_shows_that_it_has_images(plane: Plane) -> None:
    eventually(lambda: bool(plane.get("nodes")["items"]), "the node is registered")
    [node] = plane.get("nodes")["items"]
    assert node["metadata"]["labels"]["grange.dev/images"] == "true"


def test_a_socket_that_is_none_is_named(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data", words=("--cri-socket", str(tmp_path / "none.sock")))
    with pytest.raises(AssertionError, match=r"none\.sock"):
        plane.start()
    plane.stop()
