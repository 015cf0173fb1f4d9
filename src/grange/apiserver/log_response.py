"""The output of a container as an answer, and the options with which it is asked for.

Shared with the agents of nodes, which answer the API server in the same way.
"""

from collections.abc import AsyncGenerator, Mapping

from grange.api import timestamps
from grange.api.http import Response
from grange.api.meta import Document
from grange.api.status import BadRequest
from grange.apiserver import write_options
from grange.apiserver.container_choice import choose_container
from grange.apiserver.pod_logs import LogSource, PodLogOptions
from grange.apiserver.request_info import is_true


async def open_log(source: LogSource, pod: Document, asked: PodLogOptions) -> Response:
    """The output of a container as it is answered.

    Raises:
        ApiError: the output cannot be had.
    """
    # The first piece is awaited, so that what cannot be read is an error and not an empty log.
    pieces = source.read(pod, asked)
    try:
        first = await anext(pieces)
    except StopAsyncIteration:
        return Response(200, b"", "text/plain")
    except BaseException:
        await pieces.aclose()
        raise
    return Response(200, content_type="text/plain", chunks=LogStream(first, pieces))


class LogStream:
    """The rest of a log after its first piece; to be closed with ``aclose``, read or not.

    Args:
        first: the piece that was read to open the log.
        rest: the source.
    """

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self._first: bytes = first
        self._rest = rest

    def __aiter__(self) -> "LogStream":
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return await anext(self._rest)

    async def aclose(self) -> None:
        """Close the source."""
        await self._rest.aclose()


def log_options(pod: Document, query: Mapping[str, str]) -> PodLogOptions:
    """The options in a query; the container is found where the pod has but one.

    Raises:
        BadRequest: a parameter is malformed, or does not name one of the pod's containers.
    """
    since_time = query.get("sinceTime") or ""
    if since_time:
        if query.get("sinceSeconds"):
            raise BadRequest("only one of sinceTime and sinceSeconds may be given")
        try:
            timestamps.parse(since_time)
        except timestamps.TimestampError as error:
            raise BadRequest(f"sinceTime: {error}") from error
    return PodLogOptions(
        container=choose_container(pod, query.get("container") or ""),
        follow=is_true(query.get("follow")),
        previous=is_true(query.get("previous")),
        since_seconds=_optional(query, "sinceSeconds"),
        since_time=since_time,
        tail_lines=_optional(query, "tailLines"),
        timestamps=is_true(query.get("timestamps")),
        limit_bytes=_optional(query, "limitBytes"),
    )


def _optional(query: Mapping[str, str], name: str) -> int | None:
    return write_options.integer(query, name) if query.get(name) else None
