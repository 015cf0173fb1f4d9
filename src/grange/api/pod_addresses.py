"""Addresses of pods on nodes that give their pods loopback addresses.

Linux routes all of 127.0.0.0/8 to the machine itself, so pods that are processes have one address
each. A node's range is ``spec.podCIDR`` of the Node. Its upper half is for pods that ask for a
fixed address by ``POD_IP``: other pods get one from there only when the lower half is full.
"""

from ipaddress import IPv4Address, IPv4Network

POD_IP = "grange.dev/pod-ip"
"""Annotation of a pod: the address that it needs, where its node's range contains it."""

JOB_ADDRESSES = "grange.dev/job-addresses"
"""Annotation of a pod with ``POD_IP``: first and last address of its job, ``127.5.64.1-127.5.64.8``."""

LOOPBACK = IPv4Network("127.0.0.0/8")
MACHINE_ADDRESSES = frozenset(
    {IPv4Address("127.0.0.1"), IPv4Address("127.0.0.53"), IPv4Address("127.0.1.1")}
)
"""Addresses that machines commonly use themselves; no pod gets one."""


def fixed_addresses(network: IPv4Network) -> range:
    """The numbers of the addresses that are for pods with ``POD_IP``; may be empty."""
    last = int(network.broadcast_address)  # never given out
    return range(int(network.network_address) + network.num_addresses // 2, last)
