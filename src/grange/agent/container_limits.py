"""What a container may use at most, from its resources; pure."""

from grange.agent.container_runtime import ContainerLimits
from grange.api import quantity
from grange.api.kinds.pod import Container


def limits_of(container: Container) -> ContainerLimits:
    """The limits of a container; zeros where it has none."""
    limits = container.resources.limits
    return ContainerLimits(
        cpu_milli=quantity.milli(limits.get("cpu", 0)),
        memory_bytes=-(-quantity.milli(limits.get("memory", 0)) // 1000),
    )
