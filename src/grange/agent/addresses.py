"""A loopback address for every pod.

Linux routes all of 127.0.0.0/8 to the machine itself, so every pod can have its own address
without privileges: two copies of a server on one port coexist when each binds its own address.
"""

import hashlib
import itertools
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from grange.api.pod_addresses import LOOPBACK, MACHINE_ADDRESSES, fixed_addresses
from grange.base.errors import GrangeError


class NoAddressLeftError(GrangeError):
    """Every address of the range belongs to a pod: delete pods or choose a wider range."""


class AddressTakenError(GrangeError):
    """The address that a pod needs belongs to another pod; it is free when that one is gone."""


def default_range(identity: str) -> IPv4Network:
    """A range of 32,766 addresses that differs between most identities (data directories).

    One of 254 second octets; the lower half of it: Service addresses have the other.
    """
    return IPv4Network(f"127.{_octet(identity)}.0.0/17")


def service_range(identity: str) -> IPv4Network:
    """The range of the addresses of Services that goes with a ``default_range``: no pod is in it."""
    return IPv4Network(f"127.{_octet(identity)}.128.0/17")


def api_address(identity: str) -> str:
    """The address of the Service ``kubernetes``: the first of a ``service_range``, as in Kubernetes."""
    return str(service_range(identity)[1])


def _octet(identity: str) -> int:
    return 1 + int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4]) % 254


class AddressPool:
    """Who has which address. The same pod asks first for the same address, run after run.

    Pods that need a certain address ask for one of ``fixed_addresses``; the others get those last.

    Args:
        network: the range; inside 127.0.0.0/8. Its first and last address are never given out, nor
            are those that machines commonly use themselves (127.0.0.1, 127.0.0.53, 127.0.1.1).

    Raises:
        ValueError: the range is not inside 127.0.0.0/8, or has no usable address.
    """

    def __init__(self, network: IPv4Network) -> None:
        if not network.subnet_of(LOOPBACK):
            raise ValueError(f"{network} is not inside {LOOPBACK}")
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._fixed = fixed_addresses(network)
        taken = [int(item) for item in MACHINE_ADDRESSES if item in network]
        if self._count - len(taken) < 1:
            raise ValueError(f"{network} has no usable address")
        self._owners: dict[int, str] = dict.fromkeys(taken, "")
        self._addresses: dict[str, int] = {}

    def allocate(self, uid: str, wanted: str = "") -> str:
        """The pod's address; the one it has, if it has one.

        Args:
            uid: of the pod.
            wanted: the address that it needs; without effect where the range does not contain it.

        Raises:
            NoAddressLeftError: all are taken.
            AddressTakenError: another pod has the wanted one.
        """
        if uid in self._addresses:
            return str(IPv4Address(self._addresses[uid]))
        if wanted and self._first <= int(IPv4Address(wanted)) < self._first + self._count:
            number = int(IPv4Address(wanted))
            if number in self._owners:
                owner = self._owners[number]
                what = f"pod {owner} has it" if owner else "the machine uses it itself"
                raise AddressTakenError(f"address {wanted}: {what}; waiting until it is free")
            return self._give(uid, number)
        for number in self._candidates(uid):
            if number not in self._owners:
                return self._give(uid, number)
        raise NoAddressLeftError(f"all {self._count} pod addresses are taken: delete some pods")

    def _candidates(self, uid: str) -> Iterator[int]:
        """Addresses in the order in which the pod asks for them: all, those for fixed ones last."""
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8])
        plain = range(self._first, self._fixed.start)
        for part in (plain, self._fixed):
            if part:
                turn = start % len(part)
                yield from itertools.chain(part[turn:], part[:turn])

    def _give(self, uid: str, number: int) -> str:
        self._owners[number] = uid
        self._addresses[uid] = number
        return str(IPv4Address(number))

    def adopt(self, uid: str, address: str) -> bool:
        """Note that a pod already has an address; False when another pod has it."""
        number = int(IPv4Address(address))
        if self._owners.get(number, uid) != uid:
            return False
        self._owners[number] = uid
        self._addresses[uid] = number
        return True

    def exclude(self, address: str) -> None:
        """Another program of the machine uses an address: no pod gets it."""
        number = int(IPv4Address(address))
        self._addresses.pop(self._owners.get(number, ""), None)
        self._owners[number] = ""

    def release(self, uid: str) -> None:
        """The pod is gone; nothing happens if it had none."""
        number = self._addresses.pop(uid, None)
        if number is not None:
            del self._owners[number]
