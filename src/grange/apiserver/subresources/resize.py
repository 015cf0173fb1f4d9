"""``resize``: other resources for the containers of a pod; nothing else of it changes."""

from typing import Any

from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.handlers import reads, writes
from grange.apiserver.object_parts import CONTAINER_LISTS, RESIZE
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


def _part(_: AnyKind, old: Document, new: Document) -> Document:
    """The old pod with the resources of the new one's containers."""
    wanted = new.get("spec")
    if not isinstance(wanted, dict):
        return {**old, "spec": wanted}  # refused for its type
    kept = dict(old["spec"])
    for field in CONTAINER_LISTS:
        if field in kept or wanted.get(field):
            kept[field] = _resized(kept.get(field) or [], wanted.get(field))
    return {**old, "spec": kept}


def _resized(before: list[Document], wanted: Any) -> Any:
    """The containers with other resources; what is wanted itself where it is no such list."""
    if not isinstance(wanted, list) or len(wanted) != len(before):
        return wanted
    found = []
    for old, new in zip(before, wanted, strict=True):
        if not isinstance(new, dict):
            return wanted
        container = {name: value for name, value in old.items() if name != "resources"}
        if "resources" in new:
            container["resources"] = new["resources"]
        found.append({**container, "name": new.get("name")})  # another order is refused
    return found


async def _update(call: Call) -> Response:
    return await writes.update(call, _part)


async def _patch(call: Call) -> Response:
    return await writes.patch(call, _part)


RESIZE_SUBRESOURCE = Subresource(RESIZE, {"get": reads.get, "update": _update, "patch": _patch})
