"""GPUs that pods share: how much is left of each device of a node, and which devices a pod takes.

A node offers ``grange.dev/gpu-milli``: a thousand for each of its devices. A pod asks for it too: less
than a thousand is a share of one device, a multiple of a thousand is so many whole devices, and
nothing else is possible, as a share never spans two devices. Which devices a pod holds is written in
its annotation ``grange.dev/gpu-devices`` (``0`` or ``0,3``) when it is bound. Pods that were bound
without one count for the node's total, but on an unknown device.
"""

from collections.abc import Sequence

from grange.api.gpus import GPU_MILLI, WHOLE, count, tenant
from grange.api.pod_requests import PodRequest, Resources
from grange.placement.node_usage import DeviceUsage

Free = tuple[int, ...]


def asked(request: PodRequest) -> int:
    """How many thousandths of devices a pod asks for."""
    return request.resources.scalars.get(GPU_MILLI, 0)


def is_possible(want: int) -> bool:
    """Whether it is a share of one device or whole devices."""
    return want < WHOLE or want % WHOLE == 0


def free(offered: Resources, held: DeviceUsage) -> Free:
    """What is left of each device; nothing where more is in use than there is."""
    number, used = count(offered), held.used
    return tuple([max(0, WHOLE - used[at]) if at < len(used) else WHOLE for at in range(number)])


def written(devices: Sequence[int]) -> str:
    """The annotation."""
    return ",".join(str(at) for at in devices)


def changed(held: DeviceUsage, want: int, devices: Sequence[int], sign: int) -> DeviceUsage:
    """With one more pod (1) that holds these devices, or one less (-1)."""
    each = min(want, WHOLE)
    used = [*held.used, *[0] * (max(devices) + 1 - len(held.used))]
    for at in devices:
        used[at] += sign * each
    while used and used[-1] == 0:
        used.pop()
    tenants = dict(held.tenants)
    kind = tenant(want)
    tenants[kind] = tenants.get(kind, 0) + sign
    return DeviceUsage(tuple(used), tuple(sorted((k, n) for k, n in tenants.items() if n)))


def fits(left: Free, want: int) -> bool:
    """Whether the devices have what a pod asks for."""
    if want < WHOLE:
        return any(item >= want for item in left)
    return is_possible(want) and left.count(WHOLE) >= tenant(want)


def best_fit(left: Free, want: int) -> tuple[int, ...]:
    """The devices that would have least left, the first of equals; they must fit."""
    each, number = min(want, WHOLE), max(1, tenant(want))
    able = sorted((item, at) for at, item in enumerate(left) if item >= each)
    return tuple(sorted(at for _, at in able[:number]))


def taken(left: Free, want: int, devices: Sequence[int]) -> Free:
    """What is left after a pod took these devices."""
    after = [*left]
    for at in devices:
        after[at] -= min(want, WHOLE)
    return tuple(after)
