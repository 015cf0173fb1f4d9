"""The parts of an object that are written apart: status, and everything else."""

from collections.abc import Callable
from typing import Any

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Cause
from grange.apiserver.conformance import invalid

Part = Callable[[AnyKind, Document, Document], Document]
"""Which part of an object a write may touch: kind, old and new document to what is stored."""

EPHEMERAL_CONTAINERS = "ephemeralcontainers"
"""The subresource that alone writes a pod's ``spec.ephemeralContainers``."""
RESIZE = "resize"
"""The subresource that alone writes the resources of a pod's containers."""
CONTAINER_LISTS = ("containers", "initContainers")
"""Where these containers are."""


def main_part(info: AnyKind, old: Document, new: Document) -> Document:
    """Everything but the status, where the status is a subresource.

    Raises:
        Invalid: ephemeral containers or resources change, which have a subresource as well.
    """
    if RESIZE in info.parts:
        _check_same_resources(info, old, new)
    if EPHEMERAL_CONTAINERS in info.parts:
        _check_same_ephemeral_containers(info, old, new)
    if not info.has_status:
        return new
    kept = {field: value for field, value in new.items() if field != "status"}
    if "status" in old:
        kept["status"] = old["status"]
    return kept


def status_part(info: AnyKind, old: Document, new: Document) -> Document:
    """The old object with the new status."""
    kept = {field: value for field, value in old.items() if field != "status"}
    if new.get("status") is not None:
        kept["status"] = new["status"]
    return kept


def _check_same_ephemeral_containers(info: AnyKind, old: Document, new: Document) -> None:
    specs = [item.get("spec") for item in (old, new)]  # the new one may be of any type yet
    before, now = (
        (spec.get("ephemeralContainers") or None) if isinstance(spec, dict) else None
        for spec in specs
    )
    if before != now:
        message = f"may change through the subresource {EPHEMERAL_CONTAINERS} only"
        cause = Cause("FieldValueForbidden", f"Forbidden: {message}", "spec.ephemeralContainers")
        raise invalid(info, str(old["metadata"]["name"]), [cause])


def _check_same_resources(info: AnyKind, old: Document, new: Document) -> None:
    spec = new.get("spec")
    if not isinstance(spec, dict):
        return
    for field in CONTAINER_LISTS:
        before, now = old["spec"].get(field), spec.get(field)
        if before == now or not (isinstance(before, list) and isinstance(now, list)):
            continue
        if len(before) != len(now):
            continue  # refused for that
        for index, (was, container) in enumerate(zip(before, now, strict=True)):
            if _resources(was) != _resources(container):
                message = f"may change through the subresource {RESIZE} only"
                path = f"spec.{field}[{index}].resources"
                cause = Cause("FieldValueForbidden", f"Forbidden: {message}", path)
                raise invalid(info, str(old["metadata"]["name"]), [cause])


def _resources(container: Any) -> dict[str, Any]:
    """Requests, which limits stand for where there are none, and limits."""
    found = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(found, dict):
        return {}
    requests, limits = found.get("requests") or {}, found.get("limits") or {}
    if not (isinstance(requests, dict) and isinstance(limits, dict)):
        return {}  # of the wrong type: refused for that
    return {
        name: value
        for name, value in (*found.items(), ("requests", {**limits, **requests}))
        if value
    }
