"""Which fixed addresses belong to which job, where pods have loopback addresses.

Every job has a block of consecutive ones: by a hash of its UID, so that it is mostly the same again
after a restart of the controller, and apart from the blocks of other jobs.
"""

import hashlib
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, ip_network

from grange.api.kinds.node import Node, address_of
from grange.api.kinds.pod import Pod
from grange.api.meta import controller_of
from grange.api.pod_addresses import (
    JOB_ADDRESSES,
    LOOPBACK,
    MACHINE_ADDRESSES,
    fixed_addresses,
)

PORTS = range(20_000, 32_768)
"""Ports of frameworks, one for each fixed address; above them Linux takes those of clients."""


def loopback_network(nodes: Iterable[Node]) -> IPv4Network | None:
    """The range of loopback addresses that all nodes give their pods; None: there is no such range.

    A loopback address leads to the reader's own machine, so the nodes have to be on one machine. Agents of
    several machines have the same range where their data directories have the same path.
    """
    known = [*nodes]
    ranges = {node.spec.pod_cidr for node in known}
    machines = {address for node in known if (address := address_of(node))}
    return _loopback(ranges.pop()) if len(ranges) == 1 and len(machines) <= 1 else None


def machine_of(node: Node) -> str:
    """The address of the machine that alone reaches the node's pods; empty: all machines reach them."""
    return "" if _loopback(node.spec.pod_cidr) is None else address_of(node)


def _loopback(text: str) -> IPv4Network | None:
    network = ip_network(text, strict=False) if text else None
    if isinstance(network, IPv4Network) and network.subnet_of(LOOPBACK):
        return network
    return None


class AddressBlocks:
    """The blocks of all jobs of one controller. Kept in memory; ``adopt`` restores it from pods.

    Args:
        network: the range of the pods' addresses.
    """

    def __init__(self, network: IPv4Network) -> None:
        self.network = network
        self._fixed = fixed_addresses(network)[: len(PORTS)]
        self._blocks: dict[str, range] = {}
        self._reserved = [
            range(int(item), int(item) + 1)
            for item in sorted(MACHINE_ADDRESSES)
            if int(item) in self._fixed
        ]

    def reserve(self, uid: str, size: int) -> range:
        """The numbers of a job's addresses; where it begins never changes while the job has it.

        Where no place is left for so many, or where a block that has grown reaches into the next
        one, jobs share addresses: the agent lets a pod wait while another has its address.

        Args:
            uid: of the job.
            size: the most pods that it may have.
        """
        known = self._blocks.get(uid)
        if known is not None:
            start = known.start
        else:
            digest = hashlib.sha256(uid.encode()).digest()[:8]
            wanted = self._fixed.start + int.from_bytes(digest) % max(1, len(self._fixed))
            start = self._free(wanted, size)
        self._blocks[uid] = range(start, start + size)
        return self._blocks[uid]

    def adopt(self, pod: Pod) -> None:
        """Note the block of a pod's job, as the pod has it; nothing happens if it has none."""
        owner = controller_of(pod.metadata)
        text = pod.metadata.annotations.get(JOB_ADDRESSES)
        if owner is None or text is None or owner.uid in self._blocks:
            return
        try:
            first, last = (int(IPv4Address(item)) for item in text.split("-"))
        except ValueError:
            return  # edited by a user
        if first in self._fixed and first <= last:
            self._blocks[owner.uid] = range(first, last + 1)

    def release(self, uid: str) -> None:
        """The job is gone; nothing happens if it had no block."""
        self._blocks.pop(uid, None)

    def port(self, number: int) -> int:
        """The port that goes with an address."""
        return PORTS[(number - self._fixed.start) % len(PORTS)]

    def _free(self, wanted: int, size: int) -> int:
        """The first start from the wanted one on, then from the beginning, whose block is free."""
        taken = sorted((*self._blocks.values(), *self._reserved), key=lambda item: item.start)
        last = self._fixed.stop - size
        for low in (wanted, self._fixed.start):
            start = low
            for block in taken:
                if block.stop > start and block.start < start + size:
                    start = block.stop
            if start <= last:
                return start
        return max(self._fixed.start, min(wanted, last))
