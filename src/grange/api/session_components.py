"""The components of a TestSession's document, and the pod template that each stands for."""

from collections.abc import Iterator
from typing import Any

from grange.api.meta import Document

MAIN_CONTAINER = "main"
"""The container that the short fields of a component describe, and whose exit decides."""


def component_lists(spec: Document) -> Iterator[tuple[str, Document]]:
    """Path and document of every component of a spec, in the order of its fields."""
    driver = spec.get("driver")
    if isinstance(driver, dict):
        yield "spec.driver", driver
    listed: list[tuple[str, Any]] = [
        ("spec.servers", spec.get("servers")),
        ("spec.clients", spec.get("clients")),
    ]
    roles = spec.get("roles")
    if isinstance(roles, dict):
        listed += [(f"spec.roles[{role}]", found) for role, found in sorted(roles.items())]
    for path, found in listed:
        for index, item in enumerate(found if isinstance(found, list) else ()):
            if isinstance(item, dict):
                yield f"{path}[{index}]", item


def template_of(component: Document) -> Document:
    """The pod template of a component: its own, or one container made of its short fields."""
    template: Document | None = component.get("template")
    if template is not None:
        return template
    container: Document = {"name": MAIN_CONTAINER}
    for field in ("image", "command", "args", "resources", "readinessProbe"):
        if component.get(field):
            container[field] = component[field]
    return {"spec": {"containers": [container]}}
