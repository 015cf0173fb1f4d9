"""What a delete does to an object: a pure decision.

Theory of operation. An object is *removed* when nothing holds it: no finalizer, no agent that still
runs it. Otherwise it is *marked*: ``deletionTimestamp`` is when its grace ends, and
``deletionGracePeriodSeconds`` how long that is. A marked object goes when its last finalizer is
taken away and its grace is down to zero; a later delete can shorten the grace, never lengthen it.
Namespaces have other finalizers, in ``spec``, which the namespace controller takes away
through ``/finalize`` when the namespace is empty.
"""

from dataclasses import dataclass
from datetime import datetime

from grange.api import timestamps
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.write_options import DeleteOptions

_BY_PROPAGATION = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_DEFAULT_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Remove:
    """Take it away now."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Write this document: it is on its way out."""

    document: Document


@dataclass(frozen=True, slots=True)
class Keep:
    """It is on its way out already, and this delete asks for nothing more."""


def decide(
    info: AnyKind, document: Document, options: DeleteOptions, now: datetime
) -> Remove | Mark | Keep:
    """What to do; the document is not changed."""
    metadata: Document = document["metadata"]
    finalizers = _finalizers(metadata, options)
    grace = _grace(info, document, options)
    if not finalizers and not _held_by_spec(info, document) and grace == 0:
        return Remove()
    marked = {**metadata, "finalizers": finalizers}
    if not finalizers:
        del marked["finalizers"]
    current = metadata.get("deletionGracePeriodSeconds") or 0
    if not metadata.get("deletionTimestamp"):
        until = timestamps.shift(now, grace)
    elif grace < current:
        asked = timestamps.parse_or(metadata["deletionTimestamp"], now)
        until = timestamps.shift(asked, grace - current)
    elif finalizers != (metadata.get("finalizers") or []):
        return Mark({**document, "metadata": marked})
    else:
        return Keep()
    marked["deletionTimestamp"] = timestamps.rfc3339(until)
    marked["deletionGracePeriodSeconds"] = grace
    if isinstance(metadata.get("generation"), int):
        marked["generation"] = metadata["generation"] + 1
    return Mark(_terminating(info, {**document, "metadata": marked}))


def is_complete(info: AnyKind, document: Document) -> bool:
    """Whether a marked object may go now."""
    metadata = document["metadata"]
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not _held_by_spec(info, document)
    )


def without_finalizer(document: Document, finalizer: str) -> Document:
    """The object without this finalizer; the document is not changed."""
    metadata = document["metadata"]
    held = metadata.get("finalizers") or []
    if finalizer not in held:
        return document
    left = {**metadata, "finalizers": [item for item in held if item != finalizer]}
    if not left["finalizers"]:
        del left["finalizers"]
    return {**document, "metadata": left}


def _finalizers(metadata: Document, options: DeleteOptions) -> list[str]:
    propagation = options.propagation
    finalizers = [item for item in metadata.get("finalizers") or [] if item != options.finalizer]
    if propagation:
        finalizers = [item for item in finalizers if item not in _BY_PROPAGATION.values()]
    if wanted := _BY_PROPAGATION.get(propagation):
        finalizers.append(wanted)
    return finalizers


def _grace(info: AnyKind, document: Document, options: DeleteOptions) -> int:
    if info.graceful is None or not info.graceful(document):
        return 0
    if options.grace_period_s is not None:
        return options.grace_period_s
    value = (document.get("spec") or {}).get("terminationGracePeriodSeconds")
    return value if isinstance(value, int) else _DEFAULT_GRACE_S


def is_namespace(info: AnyKind) -> bool:
    """Whether the kind is the core Namespace."""
    return info.plural == "namespaces" and not info.group


def _held_by_spec(info: AnyKind, document: Document) -> bool:
    return is_namespace(info) and bool((document.get("spec") or {}).get("finalizers"))


def _terminating(info: AnyKind, document: Document) -> Document:
    if not is_namespace(info):
        return document
    return {**document, "status": {**(document.get("status") or {}), "phase": "Terminating"}}
