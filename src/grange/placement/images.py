"""How much of a pod's images a node has already."""

from collections.abc import Iterable

from grange.api.kinds.pod import PodSpec
from grange.placement.reference import MAX_SCORE

_MEBIBYTE = 2**20
LEAST_BYTES = 23 * _MEBIBYTE
MOST_BYTES_EACH = 1000 * _MEBIBYTE


def of_pod(spec: PodSpec) -> tuple[str, ...]:
    """The images that the pod's containers name, each as often as it is named."""
    containers = (*spec.init_containers, *spec.containers)
    return tuple(_tagged(item.image) for item in containers if item.image)


def _tagged(name: str) -> str:
    # A colon after the last slash, not one of a registry's port, starts the tag.
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def share(size_bytes: int, num_nodes: int, total_nodes: int) -> int:
    """What having an image is worth: little if few nodes have it, lest they get all the pods."""
    return int(float(size_bytes) * (float(num_nodes) / float(total_nodes)))


def score(shares: Iterable[int], containers: int) -> int:
    """0 to 100 for the images that a node has, of a pod with so many containers."""
    most = MOST_BYTES_EACH * containers
    if most <= LEAST_BYTES:
        return 0
    held = min(max(sum(shares), LEAST_BYTES), most)
    return MAX_SCORE * (held - LEAST_BYTES) // (most - LEAST_BYTES)
