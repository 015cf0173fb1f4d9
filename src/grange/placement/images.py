"""How much of a pod's images a node has already."""

from collections.abc import Iterable

from grange.api.kinds.pod import PodSpec
from grange.placement.resource_fit import MAX_SCORE

_MEBIBYTE = 2**20
LEAST_BYTES = 23 * _MEBIBYTE
MOST_BYTES_EACH = 1000 * _MEBIBYTE


def of_pod(spec: PodSpec) -> tuple[str, ...]:
    """The images that containers and volumes of the pod name, each as often as it is named."""
    names = [item.image for item in (*spec.init_containers, *spec.containers)]
    names += [str(item.image.get("reference") or "") for item in spec.volumes if item.image]
    return tuple(_tagged(name) for name in names if name)


def slots(spec: PodSpec) -> int:
    """How many images the pod could have: one for each container and image volume."""
    volumes = sum(1 for item in spec.volumes if item.image)
    return len(spec.containers) + len(spec.init_containers) + volumes


def _tagged(name: str) -> str:
    # A colon after the last slash, not one of a registry's port, starts the tag.
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def share(size_bytes: int, num_nodes: int, total_nodes: int) -> int:
    """What having an image is worth: little if few nodes have it, lest they get all the pods."""
    return int(float(size_bytes) * (float(num_nodes) / float(total_nodes)))


def score(shares: Iterable[int], slots: int) -> int:
    """0 to 100 for the images that a node has, of a pod with so many ``slots``."""
    most = MOST_BYTES_EACH * slots
    if most <= LEAST_BYTES:
        return 0
    held = min(max(sum(shares), LEAST_BYTES), most)
    return MAX_SCORE * (held - LEAST_BYTES) // (most - LEAST_BYTES)
