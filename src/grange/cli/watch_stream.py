"""A watch as full documents: surfaces show objects whole, so they skip the typed views."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from grange.api.http import Response
from grange.api.status import ServiceUnavailable, from_status
from grange.client.watcher import MAX_LINE_BYTES


class DocumentEvent(msgspec.Struct):
    """One change: ADDED, MODIFIED, DELETED or BOOKMARK, and the object (or a Table of it)."""

    type: str
    object: dict[str, Any]


_decoder = msgspec.json.Decoder(DocumentEvent)


async def events(response: Response) -> AsyncGenerator[DocumentEvent, None]:
    """The events of a watch's response; close the generator when done with it.

    Raises:
        ApiError: the server ended the watch with an error, e.g. ``Expired``.
        ServiceUnavailable: a line was too long, or the answer was no stream.
    """
    if response.chunks is None:
        raise ServiceUnavailable("the server did not answer the watch with a stream")
    rest = b""
    async with aclosing(chunks_of(response)) as chunks:
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise ServiceUnavailable("the server sent an event that is too long")
            for line in filter(None, lines):
                event = _decoder.decode(line)
                if event.type == "ERROR":
                    raise from_status(
                        int(event.object.get("code", 500)), msgspec.json.encode(event.object)
                    )
                yield event


async def chunks_of(response: Response) -> AsyncGenerator[bytes, None]:
    """The response's chunks with a close that reaches the transport."""
    if response.chunks is None:
        return
    try:
        async for chunk in response.chunks:
            yield chunk
    finally:
        close = getattr(response.chunks, "aclose", None)
        if close is not None:
            await close()
