"""Warnings about the templates of a job's roles: what of them has no effect."""

from collections.abc import Iterator, Mapping
from typing import Any

from grange.api import unsupported
from grange.api.fields import entry
from grange.api.meta import Document


def warnings(
    path: str, roles: Mapping[str, Document], old: Mapping[str, Document]
) -> Iterator[str]:
    """What has no effect in the templates of the roles.

    Args:
        path: of the mapping of roles.
        roles: by name.
        old: the same before the update; their templates were reviewed then.
    """
    for name, role in roles.items():
        template = role.get("template") or {}
        if template == (old.get(name) or {}).get("template"):
            continue
        at = f"{entry(path, name)}.template.spec"
        spec: dict[str, Any] = template.get("spec") or {}
        if spec.get("restartPolicy"):
            yield (
                f"{at}.restartPolicy: no effect: {entry(path, name)}.restartPolicy decides "
                "(SettedPodTemplateRestartPolicy)"
            )
        yield from of_spec(spec, at)


def of_spec(spec: Document, path: str) -> Iterator[str]:
    """What has no effect in the spec of a template."""
    yield from unsupported.command_warnings(spec, path)
    yield from unsupported.warnings(unsupported.find(spec, path))
