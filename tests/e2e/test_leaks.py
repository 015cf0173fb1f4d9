"""What many pods leave behind, when the server and the supervisors of containers are killed: nothing."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually, pod

from grange.agent.runtimes.process import cgroups
from grange.api.pod_addresses import POD_IP, fixed_addresses

pytestmark = pytest.mark.e2e

BATCH = 10
LIMITS = {"resources": {"limits": {"memory": "64Mi"}}}
SCRIPT = "sleep 600 & (setsid sleep 600 &) ; exec sleep 600"  # with a child and a daemon


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    words = ("--isolation", "auto", "--network", "addresses")
    made = Plane(tmp_path / "data", words=words)
    made.start()
    yield made
    made.stop()


def related(directory: Path) -> dict[int, str]:
    """Processes that have to do with a directory: by environment, files, mounts or command line."""
    text, found = str(directory), {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            pieces = [(entry / name).read_bytes() for name in ("environ", "mountinfo", "cmdline")]
            links = [os.readlink(item) for item in ((entry / "cwd"), *(entry / "fd").iterdir())]
        except OSError:  # it has ended
            continue
        if any(text.encode() in piece for piece in pieces) or any(text in link for link in links):
            found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def shims(directory: Path) -> list[int]:
    return [pid for pid, name in related(directory).items() if name == "grange-shim"]


def groups(directory: Path) -> list[str]:
    """The control groups of the containers of a data directory, and what they are in."""
    name = cgroups.name_of(directory)
    return [path for path, _, _ in os.walk("/sys/fs/cgroup") if name in path]


def manifest(name: str, address: str = "", **spec: object) -> object:
    made = json.loads(pod(name, "sh", "-c", SCRIPT, container=LIMITS, **spec))
    made["metadata"] |= {"labels": {"app": "leak"}}
    if address:
        made["metadata"]["annotations"] = {POD_IP: address}
    return made


def run_batch(plane: Plane, number: int) -> None:
    """Pods that become ready; one has the address that one of the batch before had."""
    [node] = plane.get("nodes")["items"]
    address = str(IPv4Address(fixed_addresses(IPv4Network(node["spec"]["podCIDR"]))[0]))
    names = [f"p{number}-{at}" for at in range(BATCH)]
    items = [manifest(name, address if at == 0 else "") for at, name in enumerate(names)]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    plane.grange("apply", "-f", "-", "--wait", stdin=json.dumps(document))
    assert plane.get("pod", names[0])["status"]["podIP"] == address
    assert len(shims(plane.directory)) >= BATCH
    has_groups = node["metadata"]["labels"]["grange.dev/limits"] == "cgroup"
    assert len(groups(plane.directory)) >= (BATCH if has_groups else 0)


def delete_all(plane: Plane) -> None:
    plane.grange("delete", "pods", "-l", "app=leak")
    pods = plane.directory / "pods"
    eventually(lambda: list(pods.iterdir()) == [], "the directories of pods are gone")
    eventually(lambda: shims(plane.directory) == [], "their supervisors are gone")
    left = {os.path.basename(path) for path in groups(plane.directory)}
    assert left <= {cgroups.name_of(plane.directory)}


def test_nothing_is_left_of_pods_and_kills(plane: Plane) -> None:
    eventually(lambda: bool(plane.get("nodes")["items"]), "the node registers")
    run_batch(plane, 0)
    for pid in shims(plane.directory)[: BATCH // 2]:
        os.kill(pid, signal.SIGKILL)
    delete_all(plane)

    run_batch(plane, 1)
    plane.kill()
    plane.start()
    delete_all(plane)

    run_batch(plane, 2)
    plane.kill()
    for pid in shims(plane.directory)[: BATCH // 2]:  # while no server is there to see it
        os.kill(pid, signal.SIGKILL)
    plane.start()
    delete_all(plane)

    run_batch(plane, 3)
    delete_all(plane)
    assert plane.process is not None
    descriptors = Path(f"/proc/{plane.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    run_batch(plane, 4)
    delete_all(plane)
    eventually(lambda: len(list(descriptors.iterdir())) <= before, "descriptors are closed")

    mounts = Path("/proc/self/mountinfo").read_text()
    plane.stop()
    eventually(lambda: related(plane.directory) == {}, "every process has ended")
    assert groups(plane.directory) == []
    assert str(plane.directory) not in mounts


def agent_of(directory: Path, words: list[str]) -> "subprocess.Popen[bytes]":
    with directory.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [*GRANGE, *words, "--data-dir", str(directory), "--isolation", "auto"],
            stdout=log,
            stderr=log,
        )


def test_nothing_is_left_of_a_joined_machine(plane: Plane, tmp_path: Path) -> None:
    """Its agent is killed while pods run, then its supervisors; in the end it is stopped."""
    directory = tmp_path / "joined"
    words = shlex.split(plane.grange("token", "create", "--node", "joined"))[1:]
    child = agent_of(directory, words)
    try:
        plane.grange("wait", "node/joined", "--for", "create")
        plane.grange("wait", "node/joined", "--for", "condition=Ready")
        assert plane.process is not None
        descriptors = Path(f"/proc/{plane.process.pid}/fd")
        counts = []
        for number in range(3):
            names = [f"j{number}-{at}" for at in range(BATCH)]
            items = [manifest(name, nodeName="joined") for name in names]
            document = {"apiVersion": "v1", "kind": "List", "items": items}
            plane.grange("apply", "-f", "-", "--wait", stdin=json.dumps(document))
            assert len(shims(directory)) >= BATCH
            child.kill()
            child.wait(LIMIT_S)
            for pid in shims(directory)[: number * BATCH // 2]:
                os.kill(pid, signal.SIGKILL)
            child = agent_of(directory, words)
            plane.grange("delete", "pods", "-l", "app=leak")
            eventually(lambda: list((directory / "pods").iterdir()) == [], "pods' files go")
            eventually(lambda: shims(directory) == [], "their supervisors are gone")
            counts.append(len(list(descriptors.iterdir())))
        # Connections to the agent come and go; what each batch left would add up.
        assert counts[2] - counts[1] < BATCH
        own = Path(f"/proc/{child.pid}/fd")
        assert len(list(own.iterdir())) < 100
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(LIMIT_S)
    eventually(lambda: related(directory) == {}, "every process has ended")
    assert groups(directory) == []
    assert str(directory) not in Path("/proc/self/mountinfo").read_text()
