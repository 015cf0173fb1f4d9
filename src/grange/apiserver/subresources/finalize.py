"""``finalize``: how the namespace controller reports that a namespace is empty.

Only ``spec.finalizers`` counts; when it and the finalizers in the metadata are empty, a namespace
that is terminating is removed by the same write.
"""

from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.handlers import writes
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


def finalize_part(info: AnyKind, old: Document, new: Document) -> Document:
    """The old object with the new ``spec.finalizers``."""
    spec = {key: value for key, value in (old.get("spec") or {}).items() if key != "finalizers"}
    given = new.get("spec")
    finalizers = given.get("finalizers") if isinstance(given, dict) else None
    if finalizers:
        spec["finalizers"] = finalizers
    return {**old, "spec": spec}


async def _update(call: Call) -> Response:
    return await writes.update(call, finalize_part)


FINALIZE = Subresource("finalize", {"update": _update})
