"""Whether this machine lets the tests make network namespaces, and which there are."""

import functools
import os
from pathlib import Path

from grange.agent.runtimes.process import pod_networks
from grange.agent.runtimes.process.pod_networks import PodNetworks


@functools.cache
def are_possible() -> bool:
    """Tried with one that is removed again."""
    if os.geteuid() != 0:
        return False
    networks = PodNetworks(f"probe of process {os.getpid()}", "127.1.127.255")
    return not pod_networks.refusal(networks, "127.1.0.0")


def left_of(directory: Path) -> list[str]:
    """Namespaces and interfaces of the pods of a data directory."""
    prefix = PodNetworks(str(directory), "").name("")[:7]
    places = (pod_networks.DIRECTORY, Path("/sys/class/net"))
    names = {path.name for place in places if place.is_dir() for path in place.iterdir()}
    return sorted(name for name in names if name.startswith(prefix))
