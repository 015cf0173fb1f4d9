"""A request that the kernel holds does not outlive its sender's right to make it.

Two network namespaces are cut off from each other, a DELETE is sent, and the network comes back when
somebody else may have taken over. Without bounds the kernel delivers it then, also for a process that
has ended. Where namespaces cannot be made, ``tests/contract/test_http.py`` shows the abortive close
alone.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.late_sender import SESSION_S

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
CLIENT, SERVER = "10.213.7.1", "10.213.7.2"
OVER_S = SESSION_S + 2.0  # others have taken over
RESENT_S = 8.0  # kernels send again after pauses that double: longer than the network was away


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], check=False, capture_output=True).returncode == 0


class Lan:
    """Two hosts and a wire between them."""

    def __init__(self, keys: Path) -> None:
        self.keys = keys
        self.hosts = {CLIENT: f"gc{os.getpid()}", SERVER: f"gs{os.getpid()}"}
        self._children: list[subprocess.Popen[str]] = []

    def make(self) -> bool:
        """Whether it could be made."""
        one, two = self.hosts.values()
        if not all(ip("netns", "add", name) for name in (one, two)):
            return False
        wire = ("link", "add", "wire", "netns", one, "type", "veth", "peer", "name", "wire")
        made = ip(*wire, "netns", two)
        for address, name in self.hosts.items():
            made = made and ip("-n", name, "addr", "add", f"{address}/30", "dev", "wire")
            made = made and ip("-n", name, "link", "set", "wire", "up")
        return made

    def plug(self, *, pulled: bool) -> None:
        """Pull the wire out at the server, or put it back."""
        assert ip("-n", self.hosts[SERVER], "link", "set", "wire", "down" if pulled else "up")

    def run(self, host: str, *words: str) -> "subprocess.Popen[str]":
        """A program on a host, once it says that it is ready."""
        command = [sys.executable, "-m", "tests.e2e.late_sender", *words]
        child = subprocess.Popen(
            ["ip", "netns", "exec", self.hosts[host], *command],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    def end(self) -> None:
        for child in self._children:
            child.kill()
            child.communicate()
        for name in self.hosts.values():
            ip("netns", "del", name)


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan | None]:
    made = Lan(tmp_path)
    try:
        yield made if made.make() else None
    finally:
        made.end()


@pytest.mark.parametrize(
    ("how", "fate", "arrives"),
    [
        ("free", signal.SIGKILL, True),
        ("fenced", signal.SIGKILL, False),
        ("fenced", signal.SIGSTOP, False),
        ("fenced", None, False),
    ],
    ids=["unbounded-killed", "killed", "stopped", "session-ended"],
)
def test_request_held_by_the_kernel_dies_with_the_session(
    how: str, fate: signal.Signals | None, *, arrives: bool, lan: Lan | None
) -> None:
    if lan is None:
        return
    server = lan.run(SERVER, "serve", SERVER, str(lan.keys))
    sender = lan.run(CLIENT, "send", SERVER, str(lan.keys), how)
    lan.plug(pulled=True)
    assert sender.stdin is not None
    sender.stdin.write("send\n")
    sender.stdin.flush()
    time.sleep(1.0)  # it is in the kernel
    if fate is not None:
        sender.send_signal(fate)
    time.sleep(OVER_S)
    lan.plug(pulled=False)
    assert server.stdout is not None
    assert server.stdout.readline() == "GET\n"
    if arrives:  # however long that takes
        assert server.stdout.readline() == "DELETE\n"
        return
    time.sleep(RESENT_S)
    server.kill()
    assert server.communicate()[0] == ""
