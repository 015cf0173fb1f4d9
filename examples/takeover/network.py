"""A network for the machines of the example: as root each is a network namespace, else a process alone.

What namespaces show besides: agents and control plane reach each other over a network, and no machine reaches the
loopback addresses of another one.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

_NET = f"10.214.{os.getpid() % 250}"
_BRIDGE = f"grx{os.getpid()}"


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
            inside = _build(made, names)
        except subprocess.CalledProcessError:  # a container whose root may not make any
            made.close()
            yield MachineNetwork()
        else:
            yield MachineNetwork(f"{_NET}.1", inside)


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


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S607  by PATH, as a reader
