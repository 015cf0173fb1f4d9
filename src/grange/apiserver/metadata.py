"""The envelope of objects: what callers may set and what only the server sets.

Everything works on documents that may hold anything; ``envelope`` is the first to look at one.
"""

from datetime import datetime

from grange.api import timestamps
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest
from grange.base.rng import Stream

# Set by the server alone. A caller may send them back, which changes nothing.
_SERVER_SET = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_DROPPED = ("selfLink", "managedFields")  # not kept: server-side apply comes with a later issue
_NOT_GIVEN = (*_SERVER_SET, *_DROPPED)
_TEXTS = ("name", "generateName", "namespace", "uid", "resourceVersion")
_NAME_MAX = 63  # generated names stay labels, as in Kubernetes
_SUFFIX = 5


def envelope(info: AnyKind, document: Document, namespace: str, name: str = "") -> Document:
    """Check that a document is of the kind and place of the path, and fill in what it omits.

    Args:
        info: the kind of the path.
        document: from outside; apiVersion, kind, name and namespace are filled in.
        namespace: of the path.
        name: of the path; empty on creation.

    Returns:
        The document's metadata, itself.

    Raises:
        BadRequest: it is of another kind, in another place, or its metadata is malformed.
    """
    api_version = document.setdefault("apiVersion", info.api_version)
    kind = document.setdefault("kind", info.kind)
    if (api_version, kind) != (info.api_version, info.kind):
        raise BadRequest(
            f"the object in the body is {api_version} {kind}, but this path takes "
            f"{info.api_version} {info.kind}"
        )
    metadata = document.get("metadata")
    if metadata is None:
        metadata = document["metadata"] = {}
    if not isinstance(metadata, dict):
        raise BadRequest("metadata must be an object")
    for field in _TEXTS:
        if not isinstance(metadata.get(field) or "", str):
            raise BadRequest(f"metadata.{field} must be a string")
    found = metadata.get("namespace") or ""
    if found != namespace and (found or not info.namespaced):
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the "
            f'request: "{found}" and "{namespace}"'
        )
    if info.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name and (metadata.setdefault("name", name) or name) != name:
        raise BadRequest(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    return metadata


def prepare(info: AnyKind, metadata: Document, *, now: datetime, rng: Stream) -> None:
    """Give a new object its identity; the name is made from ``generateName`` where it has none.

    Raises:
        BadRequest: it carries a resourceVersion.
    """
    if metadata.pop("resourceVersion", None):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    for field in _NOT_GIVEN:
        metadata.pop(field, None)
    if not metadata.get("name") and metadata.get("generateName"):
        generate_name(metadata, rng)
    metadata["uid"] = rng.uid()
    metadata["creationTimestamp"] = timestamps.rfc3339(now)
    if info.has_status:
        metadata["generation"] = 1


def generate_name(metadata: Document, rng: Stream) -> None:
    """Make a name of ``generateName`` and a random suffix."""
    metadata["name"] = metadata["generateName"][: _NAME_MAX - _SUFFIX] + rng.suffix(_SUFFIX)


def protect(old: Document, new: Document) -> None:
    """Carry over what only the server sets; ``new`` gets new metadata, ``old`` is not changed."""
    before = old["metadata"]
    metadata = new["metadata"] = dict(new["metadata"])
    for field in _SERVER_SET:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    for field in _DROPPED:
        metadata.pop(field, None)
    metadata["resourceVersion"] = before["resourceVersion"]


def count_generation(info: AnyKind, old: Document, new: Document) -> None:
    """Count one more generation if what is desired differs; both have their defaults."""
    if info.has_status and any(
        old.get(field) != new.get(field)
        for field in {*old, *new}
        if field not in {"metadata", "status", "apiVersion", "kind"}
    ):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1
