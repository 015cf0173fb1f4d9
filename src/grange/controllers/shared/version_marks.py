"""Notes on objects whose only purpose is a new version of the object.

A write that names the version before it fails from then on, however late it arrives (ADR 10).
"""

from msgspec import structs

from grange.api.meta import Resource


def is_only_noted(old: Resource, new: Resource, annotation: str) -> bool:
    """Whether an object has changed in nothing but such a note.

    That is our own write, made in a pass that may have failed since: it must not bring about the next
    pass past its backoff.
    """
    was, now = old.metadata, new.metadata
    if was.annotations.get(annotation) == now.annotations.get(annotation):
        return False
    notes = {**now.annotations, annotation: ""}
    before = {**was.annotations, annotation: ""}
    same = structs.replace(now, annotations=was.annotations, resource_version=was.resource_version)
    return notes == before and structs.replace(new, metadata=same) == old
