"""Short ways to describe a kind of our own: OpenAPI definitions for one kind and its list."""

from collections.abc import Mapping
from typing import Any

from grange.api import names
from grange.api.meta import Document

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"

RULED = "x-grange-ruled"
"""Keywords of a schema that our own server leaves to a rule of the kind, whose messages are better; servers
that have nothing but the schema go by them."""

OPAQUE = "x-grange-opaque"
"""Set on a part that our own server checks and that a CustomResourceDefinition leaves open, so that
the definition stays within what ``kubectl apply`` can keep."""


def text(description: str, **more: Any) -> Document:
    """A string."""
    return {"type": "string", "description": description, **more}


def whole(description: str, **more: Any) -> Document:
    """A 32-bit integer."""
    return {"type": "integer", "format": "int32", "description": description, **more}


def named(description: str, *, required: bool = False) -> Document:
    """The name of another object; empty for none, unless it is required."""
    form = f"({names.SUBDOMAIN})" if required else f"({names.SUBDOMAIN})?"
    bounds = {"pattern": f"^{form}$", "maxLength": names.DNS_SUBDOMAIN_MAX}
    return text(description, **{RULED: bounds})


def flag(description: str) -> Document:
    """A boolean."""
    return {"type": "boolean", "description": description}


def several(item: Document, description: str, **more: Any) -> Document:
    """A list of what ``item`` describes."""
    return {"type": "array", "description": description, "items": item, **more}


def observed_generation() -> Document:
    """``status.observedGeneration``."""
    return {
        "type": "integer",
        "format": "int64",
        "description": "The generation that this status is about.",
    }


def reference(name: str, description: str, **more: Any) -> Document:
    """An object that another definition describes."""
    return {"$ref": f"#/definitions/{name}", "description": description, **more}


def amounts(description: str) -> Document:
    """A resource list: quantities by resource name."""
    values = {"$ref": f"#/definitions/{_QUANTITY}"}
    return {"type": "object", "description": description, "additionalProperties": values}


def conditions() -> Document:
    """``status.conditions``, merged by type."""
    return {
        "type": "array",
        "description": "Details.",
        "items": {"$ref": f"#/definitions/{META}.Condition"},
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
        "x-kubernetes-patch-merge-key": "type",
        "x-kubernetes-patch-strategy": "merge",
    }


def definitions(
    name: str,
    group: str,
    version: str,
    description: str,
    *,
    spec: Mapping[str, Document],
    status: Mapping[str, Document] | None = None,
    required: tuple[str, ...] = (),
) -> dict[str, Document]:
    """The definitions of a kind with spec and perhaps status, of both, and of its list.

    Args:
        name: of the kind's definition; its last part is the kind.
        group: API group.
        version: API version.
        description: of the kind, in a sentence.
        spec: the fields of ``spec``.
        status: the fields of ``status``; None for a kind without one.
        required: which fields of ``spec`` there must be.
    """
    kind = name.rpartition(".")[2]
    plain = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    gvk = {"group": group, "version": version}
    wanted: Document = {"type": "object", "properties": dict(spec)}
    if required:
        wanted["required"] = [*required]
    parts = {"spec": reference(f"{name}Spec", "What is wanted.")}
    made: dict[str, Document] = {f"{name}Spec": wanted}
    if status is not None:
        parts["status"] = reference(f"{name}Status", "What is.")
        made[f"{name}Status"] = {"type": "object", "properties": dict(status)}
    return {
        **made,
        name: {
            "type": "object",
            "description": description,
            "properties": {
                **plain,
                "metadata": reference(f"{META}.ObjectMeta", "Name, labels and bookkeeping."),
                **parts,
            },
            "required": ["spec"],
            "x-kubernetes-group-version-kind": [{**gvk, "kind": kind}],
        },
        f"{name}List": {
            "type": "object",
            "description": f"A list of objects of kind {kind}.",
            "properties": {
                **plain,
                "metadata": reference(f"{META}.ListMeta", "Revision, and where to go on."),
                "items": {"type": "array", "items": {"$ref": f"#/definitions/{name}"}},
            },
            "required": ["items"],
            "x-kubernetes-group-version-kind": [{**gvk, "kind": f"{kind}List"}],
        },
    }
