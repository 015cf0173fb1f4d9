"""A network for the machines of the example: as root each is a network namespace, else a process alone.

What namespaces show besides: agents and control plane reach each other over a network, and no machine reaches the
loopback addresses of another one.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

_NET = f"10.214.{os.getpid() % 250}"
_BRIDGE = f"grx{os.getpid()}"
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)"


@dataclass(frozen=True, slots=True)
class MachineNetwork:
    """The machines, by name.

    Attributes:
        address: where they reach the control plane; empty where they are processes of this machine.
        inside: words before a command that runs on a machine.
    """

    address: str = ""
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def flags(self) -> tuple[str, ...]:
        """For ``grange up``, so that the machines reach it."""
        if not self.address:
            return ()
        return "--listen", "0.0.0.0:0", "--tls-san", self.address


@contextmanager
def machine_network(names: tuple[str, ...]) -> Iterator[MachineNetwork]:
    """The network, until the end of the block."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield MachineNetwork()
        return
    with ExitStack() as made:
        try:
            network = MachineNetwork(f"{_NET}.1", _build(made, names))
            _check(network)
        except (subprocess.CalledProcessError, OSError):  # a container's root, or a firewall
            made.close()
            network = MachineNetwork()
        yield network


def _build(made: ExitStack, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    _ip("link", "add", _BRIDGE, "type", "bridge")
    made.callback(_ip, "link", "delete", _BRIDGE)
    _ip("address", "add", f"{_NET}.1/24", "dev", _BRIDGE)
    _ip("link", "set", _BRIDGE, "up")
    inside = {}
    for number, name in enumerate(names, 2):
        space, ours, theirs = f"{_BRIDGE}-{name}", f"{_BRIDGE}{number}a", f"{_BRIDGE}{number}b"
        _ip("netns", "add", space)
        made.callback(_ip, "netns", "delete", space)  # its interface goes with it
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
        _ip("link", "set", ours, "master", _BRIDGE, "up")
        _ip("-netns", space, "address", "add", f"{_NET}.{number}/24", "dev", theirs)
        _ip("-netns", space, "link", "set", theirs, "up")
        _ip("-netns", space, "link", "set", "lo", "up")
        inside[name] = ("ip", "netns", "exec", space)
    return inside


def _check(network: MachineNetwork) -> None:
    """Check that a machine reaches this one.

    Raises:
        CalledProcessError, OSError: it does not.
    """
    inside = next(iter(network.inside.values()))
    with socket.create_server((network.address, 0)) as server:
        words = (network.address, str(server.getsockname()[1]))
        command = [*inside, sys.executable, "-c", _CONNECT, *words]
        subprocess.run(command, check=True, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S607  by PATH, as a reader
