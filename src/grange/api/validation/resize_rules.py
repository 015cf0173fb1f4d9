"""What of the resources of a pod's containers may change once it is created."""

from collections.abc import Mapping
from typing import Any

from grange.api.defaults.podspec import qos_class
from grange.api.validation.causes import Faults

_RESIZABLE = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def check_resize_policy(container: dict[str, Any], path: str, faults: Faults) -> None:
    """``resizePolicy`` of a container."""
    taken: set[str] = set()
    for index, item in enumerate(container.get("resizePolicy") or ()):
        at = f"{path}.resizePolicy[{index}]"
        name, policy = item.get("resourceName", ""), item.get("restartPolicy", "")
        if name not in _RESIZABLE:
            faults.not_supported(f"{at}.resourceName", name, _RESIZABLE)
        elif name in taken:
            faults.duplicate(f"{at}.resourceName", name)
        taken.add(name)
        if policy not in _RESIZE_POLICIES:
            faults.not_supported(f"{at}.restartPolicy", policy, _RESIZE_POLICIES)


def check_restart_by_resize(spec: dict[str, Any], path: str, faults: Faults) -> None:
    """A container that is never started again cannot ask for a restart when it is resized."""
    if spec.get("restartPolicy") != "Never":
        return
    for index, container in enumerate(spec.get("containers") or ()):
        if container.get("restartPolicy") not in (None, "Never"):
            continue
        for number, item in enumerate(container.get("resizePolicy") or ()):
            if item.get("restartPolicy") == "RestartContainer":
                at = f"{path}.containers[{index}].resizePolicy[{number}].restartPolicy"
                message = "must be 'NotRequired' when `restartPolicy` is 'Never'"
                faults.invalid(at, "RestartContainer", message)


def check_resize(
    spec: dict[str, Any], old: dict[str, Any], status: dict[str, Any], path: str, faults: Faults
) -> None:
    """Every rule of a resize; nothing where no resources change.

    Args:
        spec: of the pod, with its defaults; it is valid but for the change.
        old: the same before.
        status: of the pod.
        path: of the spec.
        faults: what is found.
    """
    changed = False
    for field in ("containers", "initContainers"):
        now, before = spec.get(field) or [], old.get(field) or []
        if len(now) != len(before):
            return  # refused for that
        for index, (container, was) in enumerate(zip(now, before, strict=True)):
            if _resources(container) == _resources(was):
                continue
            changed = True
            at = f"{path}.{field}[{index}].resources"
            if field == "initContainers" and was.get("restartPolicy") != "Always":
                faults.forbidden(at, "resources of init containers that end do not change")
            else:
                _check_change(container, was, at, faults)
                _check_node(container.get("name", ""), status, at, faults)
    if not changed:
        return
    classes = [qos_class(item) for item in (old, spec)]
    if classes[0] != classes[1]:
        message = f"the pod's QoS class may not change by a resize: it is {classes[0]}"
        faults.invalid(path, classes[1], message)


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {name: value for name, value in resources.items() if value}


def _check_change(
    container: dict[str, Any], was: dict[str, Any], path: str, faults: Faults
) -> None:
    now, before = container.get("resources") or {}, was.get("resources") or {}
    if now.get("claims") != before.get("claims"):
        faults.forbidden(f"{path}.claims", "only cpu and memory may change")
    for part in ("requests", "limits"):
        amounts, earlier = now.get(part) or {}, before.get(part) or {}
        for name in dict.fromkeys((*earlier, *amounts)):
            if amounts.get(name) == earlier.get(name):
                continue
            if name not in _RESIZABLE:
                faults.forbidden(f"{path}.{part}.{name}", "only cpu and memory may change")
            elif name not in amounts:
                faults.forbidden(f"{path}.{part}.{name}", f"{part} may not be removed")


def _check_node(name: str, status: dict[str, Any], path: str, faults: Faults) -> None:
    """An agent that resizes containers reports the resources of those that run."""
    for field in ("containerStatuses", "initContainerStatuses"):
        for item in status.get(field) or ():
            runs = (item.get("state") or {}).get("running") is not None
            if item.get("name") == name and runs and item.get("resources") is None:
                faults.forbidden(path, "the agent of the pod's node does not resize containers")
