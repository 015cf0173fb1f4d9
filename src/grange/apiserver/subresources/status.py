"""``status``: what is, written by the one who watches it; nothing else of the object changes."""

from grange.api.http import Response
from grange.apiserver.handlers import reads, writes
from grange.apiserver.object_parts import status_part
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


async def _update(call: Call) -> Response:
    return await writes.update(call, status_part)


async def _patch(call: Call) -> Response:
    return await writes.patch(call, status_part)


STATUS = Subresource("status", {"get": reads.get, "update": _update, "patch": _patch})
