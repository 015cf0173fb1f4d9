"""What runs in a container that is made from an image; pure."""

from collections.abc import Mapping
from typing import Any

from grange.agent import container_env, container_limits, security_context
from grange.agent.config import DEFAULT_ENVIRONMENT, NodeConfig
from grange.agent.container_runtime import ImageProgram, Program
from grange.agent.errors import IMAGE_ERROR, NotCreatableError
from grange.agent.image_store import ImageInfo
from grange.api import quantity
from grange.api.kinds.pod import Container, Pod, uses_images
from grange.api.pod_fields import IMAGES_LABEL, Feature
from grange.api.runtime_classes import CRI_CLASS, PROCESS_CLASS

_OF_POD = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")


def check_runtime_class(pod: Pod, *, has_images: bool) -> None:
    """Check that this node has the RuntimeClass that a pod names.

    Args:
        pod: which.
        has_images: whether the node runs images.

    Raises:
        NotCreatableError: it has not.
    """
    name = pod.spec.runtime_class_name
    if name not in ("", PROCESS_CLASS, CRI_CLASS):
        raise NotCreatableError(
            f'runtimeClassName "{name}": there is no such class; use {PROCESS_CLASS} or {CRI_CLASS}, or leave '
            "it out",
            lasting=True,
        )
    if name != CRI_CLASS:
        return
    if not has_images:
        raise NotCreatableError(
            f'runtimeClassName "{CRI_CLASS}": this node runs no images; use a node with the label '
            f"{IMAGES_LABEL}=true",
            IMAGE_ERROR,
            lasting=True,
        )
    if not uses_images(pod):
        raise NotCreatableError(
            f'runtimeClassName "{CRI_CLASS}": a container names no image; each has to', lasting=True
        )


def features_for(pod: Pod, config: NodeConfig) -> frozenset[Feature]:
    """What a node has for a pod that its fields depend on: a container runtime has all of it."""
    if not uses_images(pod):
        return config.features - {Feature.IMAGES}
    return frozenset(Feature) if config.images else config.features


def environment_of(base: Mapping[str, str]) -> dict[str, str]:
    """The node's part of the environment: paths of the machine are not those of an image."""
    return {name: value for name, value in base.items() if name not in DEFAULT_ENVIRONMENT}


def program_of(pod: Pod, container: Container, env: Mapping[str, str], image: ImageInfo) -> Program:
    """The program of a container.

    Args:
        pod: whose security context holds where the container has none.
        container: what runs.
        env: what the container adds to the environment of the image.
        image: that it is made from.

    Raises:
        NotCreatableError: it may not run as the user that it would run as.
    """
    security = security_of(pod, container)
    _check_user(container, security, image)
    command = tuple(container_env.expand(word, env) for word in container.command)
    written = container.command[0] if command and command[0] != container.command[0] else ""
    requests = container.resources.requests
    return Program(
        command,
        env,
        container.working_dir,
        written=written,
        limits=container_limits.limits_of(container),
        message_path=container.termination_message_path,
        image=ImageProgram(
            container.image,
            tuple(container_env.expand(word, env) for word in container.args),
            quantity.milli(requests.get("cpu", 0)),
            security,
        ),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
    )


def security_of(pod: Pod, container: Container) -> dict[str, Any]:
    """The container's security context, with the pod's where it has none."""
    of_pod: Mapping[str, Any] = pod.spec.security_context or {}
    found = {name: of_pod[name] for name in _OF_POD if of_pod.get(name) is not None}
    found |= {
        name: value
        for name, value in (container.security_context or {}).items()
        if value is not None
    }
    groups = security_context.groups_of(pod)
    return found | ({"supplementalGroups": list(groups)} if groups else {})


def _check_user(container: Container, security: Mapping[str, Any], image: ImageInfo) -> None:
    if not security.get("runAsNonRoot"):
        return
    where = f'container "{container.name}": runAsNonRoot is set'
    user = security.get("runAsUser")
    if user is None and image.username and image.user is None:
        raise NotCreatableError(
            f'{where}, and whether user "{image.username}" of the image is root is not known; set '
            "runAsUser to its number"
        )
    if (int(user) if user is not None else image.user or 0) == 0:
        raise NotCreatableError(f"{where} and it would run as root; set runAsUser to another user")
