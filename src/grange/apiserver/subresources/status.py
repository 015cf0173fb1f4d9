"""``status``: what is, written by the one who watches it; nothing else of the object changes."""

from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.handlers import reads, writes
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


def status_part(info: AnyKind, old: Document, new: Document) -> Document:
    """The old object with the new status."""
    kept = {field: value for field, value in old.items() if field != "status"}
    if new.get("status") is not None:
        kept["status"] = new["status"]
    return kept


async def _update(call: Call) -> Response:
    return await writes.update(call, status_part)


async def _patch(call: Call) -> Response:
    return await writes.patch(call, status_part)


STATUS = Subresource("status", {"get": reads.get, "update": _update, "patch": _patch})
