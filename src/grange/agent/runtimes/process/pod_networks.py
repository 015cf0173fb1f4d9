"""A network namespace for each pod, with a pair of interfaces to the machine. Needs root; everything here blocks.

Theory of operation. Addresses stay where they are without namespaces, in 127.0.0.0/8. In the table
``local`` the kernel prefers the route of one address to that of the block, so an address of a pod leads
to its interface, and from there the kernel accepts addresses of the block (``route_localnet``). In the pod,
127.0.0.0/16 is its own loopback, and the rest of the block leads to the machine: other pods, Services.
The machine has the gateway's address on each of its interfaces, so there is no bridge, and forwarding
is switched on for these interfaces alone.

A namespace is a file below ``/run/netns``, as ip-netns(8) has it, named after the data directory and the pod: what
a runtime that was killed has left behind is found by its name.
"""

import hashlib
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.runtimes.process import isolation
from grange.base.offload import Offload

DIRECTORY = Path("/run/netns")
_LIMIT_S = 20.0
_CONFIGURATION = Path("/proc/sys/net/ipv4/conf")


class NetworkFailedError(RuntimeFailedError):
    """A namespace cannot be made or removed; the message has the reason."""


class RouteTakenError(NetworkFailedError):
    """An address leads to a pod of another control plane on this machine.

    Args:
        address: that is taken.
    """

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} is the address of a pod of another control plane")
        self.address = address


class PodNetworks:
    """The network namespaces of the pods of one data directory.

    Args:
        identity: of the data directory.
        gateway: address of the machine on the interfaces that lead to pods; no pod has it.
    """

    def __init__(self, identity: str, gateway: str) -> None:
        self._prefix = f"g{_digest(identity, 6)}"
        self._gateway = gateway

    def name(self, pod_uid: str) -> str:
        """Of the namespace of a pod, and of the interface that leads to it."""
        return self._prefix + _digest(pod_uid, 8)

    def path(self, pod_uid: str) -> str:
        """The namespace of a pod as a file; empty where it has none."""
        file = DIRECTORY / self.name(pod_uid)
        return str(file) if file.exists() else ""

    def make(self, pod_uid: str, address: str) -> None:
        """Make the namespace of a pod; one that is there already is replaced.

        Raises:
            RouteTakenError: the address is not free; nothing is left.
            NetworkFailedError: the kernel or ip(8) refuses it; nothing is left.
        """
        name = self.name(pod_uid)
        self._remove(name)
        try:
            _ip("netns", "add", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            for setting in ("route_localnet", "forwarding"):
                (_CONFIGURATION / name / setting).write_text("1")
            _batch(
                [],
                f"address add {self._gateway}/32 dev {name} scope global",
                f"link set {name} up",
            )
            self._add_route(name, address)
            inside = _CONFIGURATION / "eth0" / "route_localnet"
            _ip("netns", "exec", name, "sh", "-c", f"echo 1 >{inside}")
            _batch(
                ["-n", name],
                "link set lo up",
                "address del 127.0.0.1/8 dev lo",
                "address add 127.0.0.1/16 dev lo",
                f"address add {address}/32 dev eth0 scope global",
                "link set eth0 up",
                f"route add {self._gateway} dev eth0",
                f"route add 127.0.0.0/8 via {self._gateway} dev eth0 src {address}",
                f"route add default via {self._gateway} dev eth0 src {address}",
            )
        except RouteTakenError:
            self._remove(name)
            raise
        except (NetworkFailedError, OSError) as error:
            self._remove(name)
            raise NetworkFailedError(f"cannot make a network namespace: {error}") from error

    def _add_route(self, name: str, address: str) -> None:
        try:
            _ip(
                *("route", "add", f"{address}/32", "dev", name),
                *("src", self._gateway, "table", "local"),
            )
        except NetworkFailedError as error:
            if "File exists" in str(error):
                raise RouteTakenError(address) from error
            raise

    def remove(self, pod_uids: Collection[str]) -> None:
        """Remove the namespaces of pods, of those that have one.

        Raises:
            NetworkFailedError: one cannot be removed.
        """
        for uid in pod_uids:
            self._remove(self.name(uid))

    def prune(self, pod_uids: Collection[str]) -> None:
        """Remove what is left of all pods but these.

        Raises:
            NetworkFailedError: it cannot be removed.
        """
        kept = {self.name(uid) for uid in pod_uids}
        for name in self._found():
            if name not in kept:
                self._remove(name)

    def _found(self) -> list[str]:
        places = [path for path in (DIRECTORY, _CONFIGURATION) if path.is_dir()]
        names = {name for place in places for name in os.listdir(place)}
        return sorted(name for name in names if name.startswith(self._prefix))

    def _remove(self, name: str) -> None:
        if (_CONFIGURATION / name).exists():  # with its other end, and the routes of both
            _ip("link", "delete", name)
        if (DIRECTORY / name).exists():
            _ip("netns", "delete", name)


def refusal(networks: PodNetworks, address: str) -> str:
    """Why pods cannot have network namespaces here; empty where they can.

    Args:
        networks: in which it is tried.
        address: that no pod has.
    """
    try:
        networks.make("", address)
        networks.remove([""])
    except RouteTakenError:  # another control plane tries it at this moment
        return ""
    except NetworkFailedError as error:
        return str(error)
    return ""


def opener(path: str, offload: Offload) -> Callable[[int], Awaitable[socket.socket]] | None:
    """What opens TCP sockets of an address family in a network namespace; None without a path."""
    if not path:
        return None

    async def open_one(family: int) -> socket.socket:
        return await offload.run(lambda: open_socket(path, family))

    return open_one


def open_socket(path: str, family: int) -> socket.socket:
    """A TCP socket in a network namespace; this thread is in it meanwhile.

    Args:
        path: of the namespace.
        family: of addresses.

    Raises:
        OSError: the namespace is gone.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        isolation.join_network(path)
        try:
            return socket.socket(family, socket.SOCK_STREAM)
        finally:
            isolation.join_network(f"/proc/self/fd/{before}")
    finally:
        os.close(before)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _ip(*words: str, given: str = "") -> None:
    try:
        done = subprocess.run(
            ["ip", *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkFailedError(f"ip {' '.join(words)}: {error}") from error
    if done.returncode:
        raise NetworkFailedError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _batch(options: list[str], *lines: str) -> None:
    _ip(*options, "-batch", "-", given="\n".join(lines) + "\n")
