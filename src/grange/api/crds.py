"""CustomResourceDefinitions of our kinds, for API servers that do not serve them.

Made from ``KindInfo`` alone, so a new kind needs nothing more. What a
CustomResourceDefinition cannot express is left to our own server, see ``docs/how-to/kubernetes.md``: rules between
fields and about changes, columns that are computed, defaults that depend on more than the schema.
"""

from collections.abc import Iterable

from grange.api.meta import Document
from grange.api.printing.cells import FieldCell
from grange.api.schema.structural import structural
from grange.api.scheme import AnyKind, Column
from grange.api.tables import columns_of

GROUP = "apiextensions.k8s.io"
_NAME = "Name"  # the first column of every table that Kubernetes prints


def installable(kinds: Iterable[AnyKind]) -> list[AnyKind]:
    """The kinds that a Kubernetes API server needs a definition of: those that have their own schema."""
    return [info for info in kinds if info.schema in info.definitions]


def definition(info: AnyKind) -> Document:
    """The CustomResourceDefinition of a kind.

    Args:
        info: a kind that brings its definitions along.
    """
    names: Document = {
        "kind": info.kind,
        "listKind": f"{info.kind}List",
        "plural": info.plural,
        "singular": info.singular,
    }
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    if info.categories:
        names["categories"] = list(info.categories)
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": info.qualified},
        "spec": {
            "group": info.group,
            "names": names,
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [_version(info)],
        },
    }


def _version(info: AnyKind) -> Document:
    version: Document = {"name": info.version, "served": True, "storage": True}
    subresources = _subresources(info)
    if subresources:
        version["subresources"] = subresources
    version["additionalPrinterColumns"] = [
        _column(column, column.cell)
        for column in columns_of(info)
        if isinstance(column.cell, FieldCell) and column.name != _NAME
    ]
    fields = [path for path in info.fields if not path.startswith("metadata.")]
    if fields:
        version["selectableFields"] = [{"jsonPath": f".{path}"} for path in fields]
    version["schema"] = {"openAPIV3Schema": structural(info)}
    return version


def _subresources(info: AnyKind) -> Document:
    found: Document = {}
    if info.has_status:
        found["status"] = {}
    if info.scale is not None:
        found["scale"] = {
            "specReplicasPath": f".{info.scale.replicas}",
            "statusReplicasPath": f".{info.scale.current}",
        }
        if info.scale.selector_path:
            found["scale"]["labelSelectorPath"] = f".{info.scale.selector_path}"
    return found


def _column(column: Column, field: FieldCell) -> Document:
    printed: Document = {
        "name": column.name,
        "type": "date" if field.dated else column.type,
        "jsonPath": f".{field.path}",
    }
    if column.description:
        printed["description"] = column.description
    if column.priority:
        printed["priority"] = column.priority
    return printed
