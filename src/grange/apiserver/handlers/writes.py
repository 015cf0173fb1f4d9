"""create, update and patch."""

from collections.abc import Callable

from grange.api import codec, wire
from grange.api.meta import Document
from grange.api.patch import json_patch, merge_patch, strategic
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest, UnsupportedMediaType
from grange.api.wire import Response
from grange.apiserver.call import Call
from grange.apiserver.options import WriteOptions
from grange.apiserver.registry import Part, main_part

Change = Callable[[Document], Document]


async def create(call: Call) -> Response:
    """A new object."""
    target, document = call.target, call.document()
    written = await call.registry.create(
        target.info, target.namespace, document, call.write_options(document)
    )
    return call.written(written, code=201)


async def update(call: Call, part: Part = main_part) -> Response:
    """An object replaced; without a resourceVersion whatever is there."""
    document = call.document()
    written = await call.registry.update(
        call.place, lambda _old: document, call.write_options(document), part=part
    )
    return call.written(written)


async def patch(call: Call, part: Part = main_part) -> Response:
    """An object changed by one of the patch types, which the content type names."""
    change, options = change_of(call, call.target.info)
    written = await call.registry.update(call.place, change, options, part=part, verb="patch")
    return call.written(written)


def change_of(call: Call, info: AnyKind) -> tuple[Change, WriteOptions]:
    """What the patch in the body does to a document of the kind, and the options of the write.

    Raises:
        BadRequest: it is no patch; the message says where.
        UnsupportedMediaType: of a type that is not served.
    """
    media = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = call.request.body
    if media == wire.JSON_PATCH:
        operations = codec.decode_any(body)
        if not isinstance(operations, list):
            raise BadRequest("a JSON patch must be a list of operations")
        return lambda old: json_patch.apply(old, operations), call.write_options(operations)
    if media == wire.MERGE_PATCH:
        merge = codec.decode_document(body)
        return lambda old: merge_patch.apply(old, merge), call.write_options(merge)
    if media == wire.STRATEGIC_MERGE_PATCH:
        merge = codec.decode_document(body)
        return lambda old: strategic.apply(old, merge, info.schema), call.write_options(merge)
    served = (wire.STRATEGIC_MERGE_PATCH, wire.MERGE_PATCH, wire.JSON_PATCH)
    if media == wire.APPLY_PATCH:
        raise UnsupportedMediaType(
            "server-side apply is not served here; use client-side apply, or one of "
            f"{', '.join(served)}"
        )
    raise UnsupportedMediaType(
        f'the body of the request was in an unknown format: "{media}"; accepted media types '
        f"include {', '.join(served)}"
    )
