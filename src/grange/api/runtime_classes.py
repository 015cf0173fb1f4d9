"""Which pods are containers from images, and which are processes of their node."""

from collections.abc import Iterable

PROCESS_CLASS, CRI_CLASS = "process", "cri"
"""Names of RuntimeClasses: programs of the machine, images or not; containers from images."""


def allow_images(images: Iterable[str | None], runtime_class: str | None) -> bool:
    """Whether a node that has images makes a pod's containers from them.

    One sandbox holds all containers of a pod, so each has to name an image. The RuntimeClass
    ``process`` asks for programs of the machine.

    Args:
        images: of every container and init container; empty or None for none.
        runtime_class: of the pod; empty or None for none.
    """
    return runtime_class != PROCESS_CLASS and all(images)
