"""What containers use: from their control groups where they have some, else from their processes."""

from collections.abc import Mapping

from grange.agent.container_runtime import ContainerID, ContainerUsage
from grange.agent.runtimes.process import process_usage
from grange.agent.runtimes.process.cgroups import ControlGroups


def of_containers(
    shims: Mapping[int, ContainerID], groups: ControlGroups | None
) -> list[ContainerUsage]:
    """What the containers below these shims have used.

    Args:
        shims: the attempt by the process id of its shim.
        groups: of the runtime, if it has any.
    """
    if not shims:
        return []
    counted = {
        shim: used
        for shim, target in shims.items()
        if groups is not None and (used := groups.usage(target)) is not None
    }
    found, _ = process_usage.below({shim: shim not in counted for shim in shims})
    result = []
    for shim, target in shims.items():
        group, processes = counted.get(shim), found.get(shim)
        if processes is None and group is None:
            continue  # it has just ended
        cpu_s = group.cpu_s if group is not None else None
        if cpu_s is None:
            cpu_s = processes.cpu_s if processes is not None else 0.0
        memory = group.memory_bytes if group is not None else None
        if memory is None:
            memory = processes.memory_bytes if processes is not None else 0
        result.append(ContainerUsage(target, cpu_s, memory))
    return result
