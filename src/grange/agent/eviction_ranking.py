"""Which pods a node evicts for the disk that they use, and why, as a kubelet decides it; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grange.agent.eviction_thresholds import Threshold
from grange.agent.node_disk import FileSystemStats, PodStorage
from grange.api import quantity
from grange.api.kinds.pod import Container, Pod, Volume
from grange.api.kinds.priorityclass import SYSTEM_CRITICAL_PRIORITY
from grange.api.pod_requests import EPHEMERAL_STORAGE, pod_request
from grange.api.quantity import QuantityError

EVICTED = "Evicted"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """A pod that runs, and the disk that it uses."""

    pod: Pod
    storage: PodStorage


def is_critical(pod: Pod) -> bool:
    """Whether the pod is one that the node needs: it is taken and kept under pressure."""
    return pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def is_limited(pod: Pod) -> bool:
    """Whether anything of the pod limits the disk that it may use."""
    return any(_limit(item) is not None for item in _containers(pod)) or any(
        (volume.empty_dir or {}).get("sizeLimit") for volume in pod.spec.volumes
    )


def over_limit(used: PodUsage) -> str:
    """Why the pod has to go, whatever the disk has left; empty where it keeps to its limits."""
    storage = used.storage
    if is_critical(used.pod):
        return ""
    for volume in used.pod.spec.volumes:
        size = _size_limit(volume)
        if size and storage.volumes.get(volume.name, 0) > size:
            return (
                f'Usage of EmptyDir volume "{volume.name}" exceeds the limit '
                f'"{quantity.format_binary(size)}". '
            )
    limits = {
        item.name: limit for item in _containers(used.pod) if (limit := _limit(item)) is not None
    }
    total = sum(limits.values())
    if len(limits) == len(_containers(used.pod)) and storage.total > total:
        return (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{quantity.format_binary(total)}. "
        )
    for name, limit in limits.items():
        if storage.containers.get(name, 0) > limit:
            return (
                f"Container {name} exceeded its local ephemeral storage limit "
                f'"{quantity.format_binary(limit)}". '
            )
    return ""


def first_to_evict(used: Iterable[PodUsage]) -> PodUsage | None:
    """The pod to evict next under pressure; None where there is none that may be.

    Those that use more than they request come first, then those of lower priority, then those
    that use most beyond their request.
    """
    candidates = [item for item in used if not is_critical(item.pod)]
    return min(candidates, key=_rank, default=None)


def _rank(used: PodUsage) -> tuple[bool, int, int, str]:
    beyond = used.storage.total - pod_request(used.pod.spec).resources.ephemeral_bytes
    return beyond <= 0, used.pod.spec.priority, -beyond, used.pod.metadata.uid


def pressure_message(used: PodUsage, threshold: Threshold, stats: FileSystemStats) -> str:
    """Why a pod is evicted under pressure, in a kubelet's words."""
    text = (
        f"The node was low on resource: {threshold.resource}. "
        f"Threshold quantity: {threshold.text}, available: {threshold.left(stats)}. "
    )
    for item in _containers(used.pod):
        request = quantity.value(item.resources.requests.get(EPHEMERAL_STORAGE, 0))
        amount = used.storage.containers.get(item.name, 0)
        if amount > request:
            text += (
                f"Container {item.name} was using {quantity.format_binary(amount)}, request is "
                f"{quantity.format_binary(request)}, has larger consumption of {EPHEMERAL_STORAGE}. "
            )
    return text


def _containers(pod: Pod) -> Sequence[Container]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _size_limit(volume: Volume) -> int:
    """Bytes; zero without a limit, and for one of an object that was stored before it was checked."""
    try:
        return max(0, quantity.value((volume.empty_dir or {}).get("sizeLimit") or 0))
    except QuantityError:
        return 0


def _limit(container: Container) -> int | None:
    """Bytes; None without a limit."""
    found = container.resources.limits.get(EPHEMERAL_STORAGE)
    return None if found is None else quantity.value(found)
