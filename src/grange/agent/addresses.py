"""A loopback address for every pod.

Linux routes all of 127.0.0.0/8 to the machine itself, so every pod can have an address of its own
without privileges: two copies of a server on one port coexist when each binds its own address.
"""

import hashlib
from ipaddress import IPv4Address, IPv4Network

from grange.base.errors import GrangeError

_LOOPBACK = IPv4Network("127.0.0.0/8")
_TAKEN = frozenset({IPv4Address("127.0.0.1"), IPv4Address("127.0.0.53"), IPv4Address("127.0.1.1")})


class NoAddressLeftError(GrangeError):
    """Every address of the range belongs to a pod: delete pods or choose a wider range."""


def default_range(identity: str) -> IPv4Network:
    """A range of 32,766 addresses that differs between most identities (data directories).

    One of 254 second octets; the lower half of it: Service addresses have the other.
    """
    return IPv4Network(f"127.{_octet(identity)}.0.0/17")


def service_range(identity: str) -> IPv4Network:
    """The range of the addresses of Services that goes with a ``default_range``: no pod is in it."""
    return IPv4Network(f"127.{_octet(identity)}.128.0/17")


def _octet(identity: str) -> int:
    return 1 + int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4]) % 254


class AddressPool:
    """Who has which address. The same pod asks first for the same address, run after run.

    Args:
        network: the range; inside 127.0.0.0/8. Its first and last address are never given out, nor
            are those that machines commonly use themselves (127.0.0.1, 127.0.0.53, 127.0.1.1).

    Raises:
        ValueError: the range is not inside 127.0.0.0/8, or has no usable address.
    """

    def __init__(self, network: IPv4Network) -> None:
        if not network.subnet_of(_LOOPBACK):
            raise ValueError(f"{network} is not inside {_LOOPBACK}")
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        taken = [int(item) for item in _TAKEN if item in network]
        if self._count - len(taken) < 1:
            raise ValueError(f"{network} has no usable address")
        self._owners: dict[int, str] = dict.fromkeys(taken, "")
        self._addresses: dict[str, int] = {}

    def allocate(self, uid: str) -> str:
        """The pod's address; the one it has, if it has one.

        Raises:
            NoAddressLeftError: all are taken.
        """
        if uid in self._addresses:
            return str(IPv4Address(self._addresses[uid]))
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8]) % self._count
        for step in range(self._count):
            candidate = self._first + (start + step) % self._count
            if candidate not in self._owners:
                self._owners[candidate] = uid
                self._addresses[uid] = candidate
                return str(IPv4Address(candidate))
        raise NoAddressLeftError(f"all {self._count} pod addresses are taken: delete some pods")

    def adopt(self, uid: str, address: str) -> bool:
        """Note that a pod already has an address; False when another pod has it."""
        number = int(IPv4Address(address))
        if self._owners.get(number, uid) != uid:
            return False
        self._owners[number] = uid
        self._addresses[uid] = number
        return True

    def release(self, uid: str) -> None:
        """The pod is gone; nothing happens if it had none."""
        number = self._addresses.pop(uid, None)
        if number is not None:
            del self._owners[number]
