"""Whether a node can take a pod: the last check, against what really runs there. Pure."""

from collections.abc import Iterable, Mapping

from grange.api.kinds.pod import Pod
from grange.placement import requests


def refusal(
    pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, str]
) -> tuple[str, str] | None:
    """Reason and message when the pod does not fit beside the others; None when it does.

    Args:
        pod: the new one.
        others: the pods that hold resources of the node already.
        allocatable: what the node gives to pods.
    """
    room = requests.allocatable(allocatable)
    wanted = requests.pod_request(pod.spec).resources
    held = [requests.pod_request(item.spec).resources for item in others]
    amounts = [
        ("cpu", wanted.cpu_milli, sum(item.cpu_milli for item in held), room.cpu_milli),
        ("memory", wanted.memory_bytes, sum(item.memory_bytes for item in held), room.memory_bytes),
        ("pods", 1, len(held), room.pods),
    ]
    amounts += [
        (
            name,
            amount,
            sum(item.scalars.get(name, 0) for item in held),
            room.scalars.get(name, 0),
        )
        for name, amount in sorted(wanted.scalars.items())
    ]
    for name, request, used, capacity in amounts:
        if request > 0 and used + request > capacity:
            return (
                f"OutOf{name}",
                f"Node didn't have enough resource: {name}, requested: {request}, used: {used}, "
                f"capacity: {capacity}",
            )
    return None
