"""Rules of metadata that hold for every kind."""

from collections.abc import Callable, Mapping
from typing import Any

from grange.api import names
from grange.api.meta import Document
from grange.api.validation.causes import Faults

ANNOTATIONS_MAX_BYTES = 256 * 1024
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")


def check_metadata(
    document: Document,
    *,
    namespaced: bool,
    name_rule: Callable[[str], str | None],
    faults: Faults,
) -> None:
    """Name, namespace, labels, annotations, finalizers and owners of a document."""
    meta: Document = document.get("metadata") or {}
    _check_name(meta, name_rule, faults)
    namespace = meta.get("namespace", "")
    if namespaced:
        if not namespace:
            faults.required("metadata.namespace")
        else:
            faults.named("metadata.namespace", namespace, names.check_dns_label(namespace))
    elif namespace:
        faults.forbidden("metadata.namespace", "not allowed on this kind: it is cluster-scoped")
    if labels := meta.get("labels"):
        check_labels(labels, "metadata.labels", faults)
    if annotations := meta.get("annotations"):
        check_annotations(annotations, "metadata.annotations", faults)
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        path = f"metadata.finalizers[{index}]"
        fault = names.check_qualified_name(finalizer)
        faults.named(path, finalizer, fault)
        if fault is None and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            faults.invalid(path, finalizer, "must be prefixed with a domain, like example.com/name")
    if owners := meta.get("ownerReferences"):
        _check_owners(owners, faults)


def _check_name(meta: Document, name_rule: Callable[[str], str | None], faults: Faults) -> None:
    name = meta.get("name", "")
    if name:
        faults.named("metadata.name", name, name_rule(name))
        return
    prefix = meta.get("generateName", "")
    if not prefix:
        faults.required("metadata.name", "name or generateName is required")
        return
    # What is generated must be valid; a trailing "-" is fine because characters follow.
    fault = name_rule(f"{prefix.removesuffix('-') or 'x'}")
    faults.named("metadata.generateName", prefix, fault)


def check_labels(labels: Mapping[str, str], path: str, faults: Faults) -> None:
    """Keys and values of labels."""
    for key, value in labels.items():
        if fault := names.check_qualified_name(key):
            faults.named(path, key, fault)
        if fault := names.check_label_value(value):
            faults.named(path, value, fault)


def check_annotations(annotations: Mapping[str, str], path: str, faults: Faults) -> None:
    """Keys of annotations, and their size in all."""
    size = 0
    for key, value in annotations.items():
        # Case does not matter in annotation keys.
        if fault := names.check_qualified_name(key.lower()):
            faults.named(path, key, fault)
        size += len(key) + len(value)
    if size > ANNOTATIONS_MAX_BYTES:
        faults.too_long(path, f"may not be more than {ANNOTATIONS_MAX_BYTES} bytes")


def _check_owners(owners: list[dict[str, Any]], faults: Faults) -> None:
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                faults.required(f"{path}.{field}", "must not be empty")
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        faults.invalid(
            "metadata.ownerReferences", controllers, "only one reference can have controller: true"
        )
