"""Resources of a pod that is resized in place: asked for, allocated, and in force; pure.

The spec of the object holds what is asked for; the spec of a ``ManagedContainer`` what the node has
allocated, with which it is started; ``applied`` what the running container has.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from grange.agent.lifecycle import ManagedContainer, Role
from grange.api import pod_requests
from grange.api.kinds.pod import Container, Pod, ResourceRequirements
from grange.api.pod_requests import Resources

RESIZABLE = frozenset({Role.MAIN, Role.SIDECAR})
_RESTART = "RestartContainer"


def restore(container: ManagedContainer, pod: Pod) -> None:
    """Let a fresh state have the resources that an earlier agent allocated, as the status has them."""
    container.applied = container.spec.resources
    if container.role not in RESIZABLE:
        return
    for item in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if item.name == container.name and item.resources is not None:
            container.applied = item.resources
            requests = item.allocated_resources or item.resources.requests
            allocated = ResourceRequirements(requests, item.resources.limits)
            container.spec = replace(container.spec, resources=allocated)


def changes(pod: Pod, containers: Iterable[ManagedContainer]) -> dict[str, ResourceRequirements]:
    """By container, the resources that are asked for and differ from those that are allocated."""
    asked = {
        item.name: item.resources for item in (*pod.spec.init_containers, *pod.spec.containers)
    }
    return {
        container.name: asked[container.name]
        for container in containers
        if container.role in RESIZABLE
        and asked.get(container.name, container.spec.resources) != container.spec.resources
    }


def request_of(
    pod: Pod,
    containers: Sequence[ManagedContainer],
    changed: Mapping[str, ResourceRequirements] | None = None,
) -> Resources:
    """What the pod needs with what is allocated, and with these resources in its place."""
    by_name = {item.name: item.spec for item in containers if item.role is not Role.EPHEMERAL}
    for name, resources in (changed or {}).items():
        by_name[name] = replace(by_name[name], resources=resources)

    def allocated(items: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(by_name.get(item.name, item) for item in items)

    spec = replace(
        pod.spec,
        containers=allocated(pod.spec.containers),
        init_containers=allocated(pod.spec.init_containers),
    )
    return pod_requests.pod_request(spec).resources


def grows(wanted: Resources, held: Resources) -> bool:
    """Whether more CPU or memory is wanted than is held; nothing else can change."""
    return wanted.cpu_milli > held.cpu_milli or wanted.memory_bytes > held.memory_bytes


def is_outdated(container: ManagedContainer) -> bool:
    """Whether a container that runs has other resources than are allocated for it."""
    return container.role in RESIZABLE and container.applied != container.spec.resources


def needs_restart(container: ManagedContainer) -> bool:
    """Whether one of the resources that differ is one for which the container is to be restarted."""
    applied, allocated = container.applied, container.spec.resources
    names = [
        item.get("resourceName", "")
        for item in container.spec.resize_policy
        if item.get("restartPolicy") == _RESTART
    ]
    return any(
        applied is None
        or applied.requests.get(name) != allocated.requests.get(name)
        or applied.limits.get(name) != allocated.limits.get(name)
        for name in names
    )
