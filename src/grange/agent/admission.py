"""Whether a node can take a pod: the last check, against what really runs there. Pure."""

from collections.abc import Sequence

from grange.api.pod_requests import EPHEMERAL_STORAGE, Resources


def refusal(
    wanted: Resources, held: Sequence[Resources], room: Resources
) -> tuple[str, str] | None:
    """Reason and message when a pod does not fit with the others; None when it does.

    Args:
        wanted: what the new one requests.
        held: what each pod on the node requests.
        room: what the node gives to pods.
    """
    amounts = [
        ("cpu", wanted.cpu_milli, sum(item.cpu_milli for item in held), room.cpu_milli),
        ("memory", wanted.memory_bytes, sum(item.memory_bytes for item in held), room.memory_bytes),
        (
            EPHEMERAL_STORAGE,
            wanted.ephemeral_bytes,
            sum(item.ephemeral_bytes for item in held),
            room.ephemeral_bytes,
        ),
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
