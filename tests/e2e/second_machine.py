"""A second machine: as root a network namespace of this one, else a second agent of this one.

What is shown in a namespace alone: the agents reach each other over a network, and neither reaches the
loopback addresses of the other.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually

# One per process: other workers have second machines at the same time.
_NETWORK = IPv4Network((0x0AD50000 + os.getpid() % 0x4000 * 4, 30))  # of 10.213.0.0/16
HERE, THERE = map(str, _NETWORK.hosts())

CLIENT = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


@dataclass(frozen=True, slots=True)
class SecondMachine:
    """What runs commands there.

    Attributes:
        inside: the words before a command; none where it is the same machine.
        link: our end of the cable; empty where there is none.
    """

    inside: tuple[str, ...] = ()
    link: str = ""

    def connect(self, state: str) -> None:
        """Plug the cable in (``up``) or pull it (``down``)."""
        if self.link:
            subprocess.run(["ip", "link", "set", self.link, state], check=True)

    def fetch(self, url: str) -> str:
        """What a URL answers there; empty where nothing does."""
        return self.run(CLIENT, url)

    def run(self, script: str, *words: str) -> str:
        """What a script prints there."""
        command = [*self.inside, sys.executable, "-c", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done.stdout.strip()

    def join(self, plane: Plane, name: str, directory: Path) -> "subprocess.Popen[bytes]":
        """Start an agent there, whose node is Ready when this returns."""
        printed = shlex.split(plane.grange("token", "create", "--node", name))
        more = (
            "--data-dir",
            str(directory / "agent"),
            "--capacity",
            "cpu=1,memory=1Gi",
            "--isolation",
            "none",
        )
        with (directory / "log").open("a") as log:
            started = subprocess.Popen(
                [*self.inside, *GRANGE, *printed[1:], *more], stdout=log, stderr=log
            )
        eventually(lambda: node_state(plane, name) == "True", "the node is Ready")
        return started


@contextmanager
def second_machine() -> Iterator[SecondMachine]:
    """One, until the end of the block."""
    if os.geteuid() != 0:
        yield SecondMachine()
        return
    name, ours, theirs = f"grange-{os.getpid()}", f"gr{os.getpid()}a", f"gr{os.getpid()}b"
    inside = ("ip", "netns", "exec", name)
    for words in (
        ["ip", "netns", "add", name],
        ["ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name],
        ["ip", "addr", "add", f"{HERE}/30", "dev", ours],
        ["ip", "link", "set", ours, "up"],
        [*inside, "ip", "addr", "add", f"{THERE}/30", "dev", theirs],
        [*inside, "ip", "link", "set", theirs, "up"],
        [*inside, "ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(words, check=True)
    try:
        yield SecondMachine(inside, ours)
    finally:
        subprocess.run(["ip", "link", "del", ours], check=True)
        subprocess.run(["ip", "netns", "del", name], check=True)


@contextmanager
def plane_for(machine: SecondMachine, directory: Path) -> Iterator[Plane]:
    """A control plane on this machine that the second one reaches."""
    words = ("--listen", f"{HERE}:0", "--tls-san", HERE) if machine.link else ()
    made = Plane(directory / "data", words=words)
    line = made.start()
    if machine.link:
        assert made.output is not None
        shown = line + made.output.readline() + made.output.readline()
        assert re.search(rf"grange token create --server https://{HERE}:\d+ --kubeconfig", shown)
    try:
        yield made
    finally:
        made.stop()


def node_state(plane: Plane, name: str) -> str:
    """The status of a node's condition Ready; empty where there is none."""
    for node in plane.get("nodes")["items"]:
        for item in node["status"].get("conditions", []):
            if node["metadata"]["name"] == name and item["type"] == "Ready":
                return str(item["status"])
    return ""


def other_node(plane: Plane, name: str) -> str:
    """The name of the node that is not the given one."""
    [found] = {node["metadata"]["name"] for node in plane.get("nodes")["items"]} - {name}
    return str(found)
