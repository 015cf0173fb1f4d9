"""Scale of autoscaling/v1: how many copies of something there are and shall be.

A kind that is served but never stored: every kind with a ``KindInfo.scale`` shows and takes it at
the ``scale`` path of its objects, so tools scale anything without knowing what it is.
"""

import msgspec

from grange.api.fields import lookup
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo, Scaling
from grange.api.status import Cause
from grange.api.validation.causes import Faults

_NAME = "io.k8s.api.autoscaling.v1.Scale"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScaleSpec(View, frozen=True):
    """What is wanted."""

    replicas: int = 0


class ScaleStatus(View, frozen=True):
    """What is: how many there are, and the label selector that finds them."""

    replicas: int = 0
    selector: str = ""


class Scale(Resource, frozen=True):
    """How many copies."""

    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)


def _default(document: Document) -> None:
    spec = document["spec"]
    if spec.get("replicas") is None:
        spec["replicas"] = 0  # typed Go clients leave a zero out: so a scale to none arrives


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    replicas = document["spec"]["replicas"]
    if replicas < 0:
        faults.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    return faults.causes


SCALE = KindInfo(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    view=Scale,
    schema=_NAME,
    definitions={
        f"{_NAME}Spec": {
            "type": "object",
            "properties": {
                "replicas": {
                    "type": "integer",
                    "format": "int32",
                    "description": "How many are wanted; zero where it is left out.",
                }
            },
        },
        f"{_NAME}Status": {
            "type": "object",
            "properties": {
                "replicas": {
                    "type": "integer",
                    "format": "int32",
                    "description": "How many there are.",
                },
                "selector": {
                    "type": "string",
                    "description": "Label selector that finds them.",
                },
            },
        },
        _NAME: {
            "type": "object",
            "description": "How many copies of something there are and shall be.",
            "required": ["spec"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"$ref": f"#/definitions/{_META}.ObjectMeta"},
                "spec": {"$ref": f"#/definitions/{_NAME}Spec"},
                "status": {"$ref": f"#/definitions/{_NAME}Status"},
            },
            "x-kubernetes-group-version-kind": [
                {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            ],
        },
    },
    columns=(
        Column(
            "Desired", cells.integer("spec.replicas"), type="integer", description="Copies wanted."
        ),
        Column(
            "Available",
            cells.integer("status.replicas"),
            type="integer",
            description="Copies there are.",
        ),
    ),
    default=_default,
    validate=_validate,
)


def shown(scaling: Scaling, document: Document) -> Document:
    """The Scale of an object, which shares nothing with it that could be changed."""
    meta = document["metadata"]
    scaling = scaling.of(document)
    return {
        "apiVersion": SCALE.api_version,
        "kind": SCALE.kind,
        "metadata": {field: meta[field] for field in _SHOWN if field in meta},
        "spec": {"replicas": lookup(document, scaling.replicas) or 0},
        "status": {
            "replicas": lookup(document, scaling.current) or 0,
            "selector": scaling.selector(document),
        },
    }


def scaled(scaling: Scaling, document: Document, replicas: int) -> Document:
    """The object with another number of copies wanted; the given one is not changed."""
    result = dict(document)
    *parents, last = scaling.of(document).replicas.split(".")
    inner = result
    for part in parents:
        value = inner.get(part)
        inner[part] = dict(value) if isinstance(value, dict) else {}
        inner = inner[part]
    inner[last] = replicas
    return result
