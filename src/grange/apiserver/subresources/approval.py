"""``approval``: the decision on a request for a certificate; nothing else of the object changes."""

from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.handlers import reads, writes
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


def approval_part(info: AnyKind, old: Document, new: Document) -> Document:
    """The old object with the new ``status.conditions``."""
    status = dict(old.get("status") or {})
    given = new.get("status")
    conditions = given.get("conditions") if isinstance(given, dict) else None
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)
    kept = {field: value for field, value in old.items() if field != "status"}
    return {**kept, "status": status} if status else kept


async def _update(call: Call) -> Response:
    return await writes.update(call, approval_part)


async def _patch(call: Call) -> Response:
    return await writes.patch(call, approval_part)


APPROVAL = Subresource("approval", {"get": reads.get, "update": _update, "patch": _patch})
