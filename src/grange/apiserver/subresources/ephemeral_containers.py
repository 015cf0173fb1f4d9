"""``ephemeralcontainers``: programs that are added to a pod that runs; nothing else of it changes."""

from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.handlers import reads, writes
from grange.apiserver.object_parts import EPHEMERAL_CONTAINERS
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource

_FIELD = "ephemeralContainers"


def _part(_: AnyKind, old: Document, new: Document) -> Document:
    """The old pod with the ephemeral containers of the new one."""
    wanted = new.get("spec")
    if not isinstance(wanted, dict):
        return {**old, "spec": wanted}  # refused for its type
    kept = {name: value for name, value in old["spec"].items() if name != _FIELD}
    if found := wanted.get(_FIELD):
        kept[_FIELD] = found
    return {**old, "spec": kept}


async def _update(call: Call) -> Response:
    return await writes.update(call, _part)


async def _patch(call: Call) -> Response:
    return await writes.patch(call, _part)


EPHEMERAL_CONTAINERS_SUBRESOURCE = Subresource(
    EPHEMERAL_CONTAINERS, {"get": reads.get, "update": _update, "patch": _patch}
)
