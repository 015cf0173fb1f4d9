"""What packing policies look at: what nodes have left of CPU and devices, and the scale of scores.

Policies score on a finer scale than the 0 to 100 of other plugins, because a policy is meant to
decide and the others to break its ties; and because nodes of a packed cluster differ by little.
"""

from grange.api.gpus import GPU_MILLI
from grange.api.pod_requests import PodRequest
from grange.placement import devices
from grange.placement.loads import Load

SCALE = 1_000_000
LARGEST = (128_000, 8_000)
"""Thousandths of CPUs and of GPUs by which amounts are measured: those of a large node."""


def asked(request: PodRequest) -> tuple[int, int]:
    """Thousandths of CPUs and GPUs that a pod asks for."""
    return request.resources.cpu_milli, devices.asked(request)


def left(load: Load) -> tuple[int, int]:
    """Thousandths of CPUs and GPUs that a node has left."""
    offered, usage = load.allocatable, load.usage
    gpus = offered.scalars.get(GPU_MILLI, 0) - usage.scalars.get(GPU_MILLI, 0)
    return offered.cpu_milli - usage.cpu_milli, gpus
