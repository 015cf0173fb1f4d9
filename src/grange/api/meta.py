"""The envelope of every object: partial typed views over full documents.

The stored form of an object is its full JSON document. A *view* is a frozen ``msgspec.Struct`` that
names only the fields we read; decoding skips the rest, and because writes are patches, fields that
we do not model survive.
"""

from typing import Any, NamedTuple, TypeAlias

import msgspec

Document: TypeAlias = dict[str, Any]


class View(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """Base of all views: camelCase on the wire, unknown fields ignored, defaults left out.

    Sequences are tuples, never lists: Python's cyclic garbage collector visits a list forever,
    but forgets a tuple of views, which cannot be part of a cycle (nor can a dict of strings).
    """


class OwnerReference(View, frozen=True):
    """Who owns the object; at most one owner has ``controller`` set."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(View, frozen=True):
    """Identity and bookkeeping; ``resource_version`` is opaque outside the API server."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Resource(View, frozen=True):
    """Base of every kind's view."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> "ObjectKey":
        """Namespace and name."""
        return ObjectKey(self.metadata.namespace, self.metadata.name)


class Condition(View, frozen=True):
    """metav1.Condition; ``status`` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class ObjectKey(NamedTuple):
    """Identity within a kind; the namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def preconditions(meta: ObjectMeta) -> Document:
    """The metadata of a patch, or of delete options, that fails unless the object is as it was read.

    The server answers 409 where the UID or the version differ (Kubernetes API conventions,
    "Concurrency control and consistency").
    """
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}


def all_fields(value: msgspec.Struct) -> Document:
    """Every field as on the wire, also those at their default: a merge patch must be able to set them back."""
    found = Document()
    for field in msgspec.structs.fields(value):
        item = getattr(value, field.name)
        is_struct = isinstance(item, msgspec.Struct)
        found[field.encode_name] = all_fields(item) if is_struct else msgspec.to_builtins(item)
    return found


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that controls the object, if any."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


class SelectorRequirement(View, frozen=True):
    """``key operator values``, for labels and fields of nodes and for label selectors."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True):
    """metav1.LabelSelector: all of the labels and all of the expressions."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()
