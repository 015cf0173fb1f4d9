"""Rules of ephemeral containers: programs that are added to a pod that runs, to look into it."""

from typing import Any

from grange.api.pod_fields import FIELDS
from grange.api.validation.causes import Faults
from grange.api.validation.podspec import check_container

_UNFIT = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources")
_WITHOUT_RESTARTS = ("restartPolicy", "restartPolicyRules")


def check_ephemeral_containers(
    spec: dict[str, Any], old: dict[str, Any], path: str, faults: Faults
) -> None:
    """What may be added; what was there stays as it is."""
    items, before = spec.get("ephemeralContainers") or (), old.get("ephemeralContainers") or ()
    if items == before:
        return
    now = {item.get("name"): item for item in items}
    if any(now.get(item["name"]) != item for item in before):
        faults.forbidden(path, "existing ephemeral containers may not change or be removed")
    others = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    names = {item.get("name", "") for item in others}
    volumes = {item.get("name", "") for item in spec.get("volumes") or ()}
    taken = set(names)
    for index, container in enumerate(items):
        at = f"{path}[{index}]"
        check_container(container, at, volumes, taken, faults)
        for field in _UNFIT:
            if container.get(field):
                faults.forbidden(f"{at}.{field}", "ephemeral containers have none")
        for field in _WITHOUT_RESTARTS:
            if container.get(field):
                faults.forbidden(f"{at}.{field}", FIELDS[f"ephemeralContainers[].{field}"].note)
        if any(mount.get("subPath") for mount in container.get("volumeMounts") or ()):
            faults.forbidden(f"{at}.volumeMounts", "ephemeral containers have no subPath")
        target = container.get("targetContainerName")
        if target and target not in names:
            faults.not_found(f"{at}.targetContainerName", target)
