"""One call for all rules of an object."""

from grange.api.fields import lookup
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_metadata

_IMMUTABLE_METADATA = ("name", "namespace", "uid", "creationTimestamp", "generateName")


def validate(document: Document, old: Document | None, info: AnyKind) -> list[Cause]:
    """Every rule that the document breaks: metadata, immutable fields, the kind's own.

    Args:
        document: as it would be stored; it has passed ``schema.check`` and has its defaults.
        old: as it is stored, for an update; None for a create.
        info: its kind.

    Returns:
        The causes, in the order of the document's fields; empty when it may be stored.
    """
    faults = Faults()
    # Unchanged metadata were checked when they were written, perhaps by fewer rules.
    if old is None or document.get("metadata") != old.get("metadata"):
        check_metadata(
            document, namespaced=info.namespaced, name_rule=info.name_rule, faults=faults
        )
    if old is not None:
        _check_unchanged(document, old, info, faults)
    return faults.causes + info.validate(document, old)


def _check_unchanged(document: Document, old: Document, info: AnyKind, faults: Faults) -> None:
    meta, before = document.get("metadata") or {}, old.get("metadata") or {}
    for field in _IMMUTABLE_METADATA:
        if field in before and meta.get(field, before[field]) != before[field]:
            faults.invalid(f"metadata.{field}", meta.get(field), "field is immutable")
    if before.get("deletionTimestamp"):
        held = frozenset(before.get("finalizers") or ())
        added = [x for x in meta.get("finalizers") or () if x not in held]
        if added:
            message = "no new finalizers can be added if the object is being deleted"
            faults.forbidden("metadata.finalizers", f"{message}: {', '.join(added)}")
    for path in info.immutable:
        then, now = lookup(old, path), lookup(document, path)
        if then is not None and now != then:
            faults.invalid(path, now, "field is immutable")
