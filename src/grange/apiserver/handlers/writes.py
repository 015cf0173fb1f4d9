"""create, update and patch."""

from collections.abc import Callable
from dataclasses import replace

from grange.api import codec, http
from grange.api.http import Response
from grange.api.meta import Document
from grange.api.patch import json_patch, merge_patch, strategic
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest, UnsupportedMediaType
from grange.apiserver.object_parts import Part, main_part, status_part
from grange.apiserver.pod_spec_cache import SentPod
from grange.apiserver.request_context import Call
from grange.apiserver.write_options import WriteOptions

Change = Callable[[Document], Document]


async def create(call: Call) -> Response:
    """A new object."""
    target, sent = call.target, call.sent_pod()
    document, options = await call.prepare(lambda: _given(call, sent))
    written = await call.registry.create(target.info, target.namespace, document, options, sent)
    return call.written(written, code=201)


async def update(call: Call, part: Part = main_part) -> Response:
    """An object replaced; without a resourceVersion whatever is there."""
    document, options = await call.prepare(lambda: _given(call))
    written = await call.registry.update(
        call.place, lambda _old: document, options, part=part, keeps_spec=part is status_part
    )
    return call.written(written)


async def patch(call: Call, part: Part = main_part) -> Response:
    """An object changed by one of the patch types, which the content type names."""
    change, options = await call.prepare(lambda: change_of(call, call.target.info))
    # Operations of a JSON patch may read any field; the other types merge field by field.
    keeps_spec = part is status_part and _media(call) != http.JSON_PATCH
    written = await call.registry.update(
        call.place, change, options, part=part, verb="patch", keeps_spec=keeps_spec
    )
    return call.written(written)


def _given(call: Call, sent: SentPod | None = None) -> tuple[Document, WriteOptions]:
    if sent is not None and sent.accepted is not None:
        return sent.document, call.write_options({**sent.document, "spec": 0}, sent.rest)
    document = call.document()
    return document, call.write_options(document)


def _media(call: Call) -> str:
    return call.request.headers.get("content-type", "").partition(";")[0].strip().lower()


def change_of(call: Call, info: AnyKind) -> tuple[Change, WriteOptions]:
    """What the patch in the body does to a document of the kind, and the options of the write.

    Raises:
        BadRequest: it is no patch; the message gives the position.
        UnsupportedMediaType: of a type that is not served.
    """
    media = _media(call)
    body = call.request.body
    if media == http.JSON_PATCH:
        operations = codec.decode_any(body)
        if not isinstance(operations, list):
            raise BadRequest("a JSON patch must be a list of operations")
        options = call.write_options(operations)
        if json_patch.copies(operations):  # a few copies make a small document large
            options = replace(options, large=True)
        return lambda old: json_patch.apply(old, operations), options
    if media == http.MERGE_PATCH:
        merge = codec.decode_document(body)
        return merge_patch.MergePatch(merge), call.write_options(merge)
    if media == http.STRATEGIC_MERGE_PATCH:
        merge = codec.decode_document(body)
        return lambda old: strategic.apply(old, merge, info.schema), call.write_options(merge)
    served = (http.STRATEGIC_MERGE_PATCH, http.MERGE_PATCH, http.JSON_PATCH)
    if media == http.APPLY_PATCH:
        raise UnsupportedMediaType(
            "server-side apply is not served here; use client-side apply, or one of "
            f"{', '.join(served)}"
        )
    raise UnsupportedMediaType(
        f'the body of the request was in an unknown format: "{media}"; accepted media types '
        f"include {', '.join(served)}"
    )
