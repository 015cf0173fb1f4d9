"""What the pods of one node need together, and how that changes with one pod more or less.

What a single pod asks for, and what a node offers, is in ``api.pod_requests``.
"""

from collections.abc import Mapping

import msgspec

from grange.api.pod_requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NO_SCALARS,
    PodRequest,
    Resources,
)
from grange.placement.ports_and_disks import NO_HOLDINGS, Holding, Holdings, held, released


class DeviceUsage(msgspec.Struct, frozen=True, gc=False):
    """What is in use of a node's devices; ``devices`` has the algebra.

    Attributes:
        used: thousandths in use by device; devices after the last one in use are left out.
        tenants: how many pods there are by how many whole devices they hold, 0 for a share; sorted.
    """

    used: tuple[int, ...] = ()
    tenants: tuple[tuple[int, int], ...] = ()


NONE_HELD = DeviceUsage()


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What the pods of one node need together; an immutable value, so that copies can share it.

    Attributes:
        cpu_milli, memory_bytes, ephemeral_bytes: sums of the requests.
        nonzero_cpu_milli, nonzero_memory_bytes: sums of the non-zero view.
        scalars: sums by name; names whose sum is zero may be left out.
        devices: what is in use of each GPU.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    nonzero_cpu_milli: int = 0
    nonzero_memory_bytes: int = 0
    scalars: Mapping[str, int] = NO_SCALARS
    ports: Holdings = NO_HOLDINGS
    devices: DeviceUsage = NONE_HELD


IDLE = Usage()


def amount_of(what: Resources | Usage, name: str) -> int:
    """How much of a resource is asked for, offered or in use; pods are no such resource."""
    match name:
        case "cpu":
            return what.cpu_milli
        case "memory":
            return what.memory_bytes
        case "ephemeral-storage":
            return what.ephemeral_bytes
        case _:
            return what.scalars.get(name, 0)


def asked_amounts(need: Resources) -> list[tuple[str, int]]:
    """What a pod asks for, by resource: CPU, memory, storage, then the others; no zeros."""
    plain = (
        (CPU, need.cpu_milli),
        (MEMORY, need.memory_bytes),
        (EPHEMERAL_STORAGE, need.ephemeral_bytes),
    )
    return [(name, amount) for name, amount in (*plain, *need.scalars.items()) if amount > 0]


def changed(usage: Usage, request: PodRequest, ports: tuple[Holding, ...], sign: int) -> Usage:
    """The usage with one more pod (1), or one less (-1): each is the exact inverse of the other."""
    need = request.resources
    scalars = usage.scalars
    if need.scalars:
        left = dict(scalars)
        for name, amount in need.scalars.items():
            left[name] = left.get(name, 0) + sign * amount
            if not left[name]:
                del left[name]
        scalars = left or NO_SCALARS
    holdings = usage.ports
    if ports:
        holdings = held(holdings, ports) if sign > 0 else released(holdings, ports)
    return Usage(
        usage.cpu_milli + sign * need.cpu_milli,
        usage.memory_bytes + sign * need.memory_bytes,
        usage.ephemeral_bytes + sign * need.ephemeral_bytes,
        usage.pods + sign,
        usage.nonzero_cpu_milli + sign * request.nonzero_cpu_milli,
        usage.nonzero_memory_bytes + sign * request.nonzero_memory_bytes,
        scalars,
        holdings,
        usage.devices,
    )


def charged(usage: Usage, request: PodRequest, ports: tuple[Holding, ...]) -> Usage:
    """The usage with one more pod."""
    return changed(usage, request, ports, 1)
