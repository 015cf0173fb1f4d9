"""How a pod requests shared GPUs: the resource that it asks for, and the annotation.

A node offers ``grange.dev/gpu-milli``: a thousand for each of its devices. Which devices a pod holds is
written in its annotation ``grange.dev/gpu-devices`` (``0`` or ``0,3``) when it is bound.
"""

from grange.api.pod_requests import Resources

GPU_MILLI = "grange.dev/gpu-milli"
ANNOTATION = "grange.dev/gpu-devices"
WHOLE = 1000
DEVICES_MAX = 64


def tenant(want: int) -> int:
    """How many whole devices; 0 for a share."""
    return want // WHOLE


def count(offered: Resources) -> int:
    """How many devices a node has."""
    return min(DEVICES_MAX, offered.scalars.get(GPU_MILLI, 0) // WHOLE)


def parse(text: str, want: int) -> tuple[int, ...]:
    """The devices that an annotation names; none if it does not fit what the pod asks for."""
    words = text.split(",") if text else []
    if len(words) != max(1, tenant(want)) or len(words) > DEVICES_MAX:
        return ()
    if not all(word.isascii() and word.isdigit() and len(word) <= 2 for word in words):
        return ()
    found = tuple(int(word) for word in words)
    return found if len({*found}) == len(found) and max(found) < DEVICES_MAX else ()
