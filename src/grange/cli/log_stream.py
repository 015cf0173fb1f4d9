"""The log of a container as lines, while it is written."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from grange.api.http import Request
from grange.api.kinds import POD
from grange.cli import watch_stream
from grange.cli.durations import parse_duration
from grange.cli.session import ApiSession


def log_query(*, tail: int, since: str, container: str = "") -> dict[str, str]:
    """The query of a log request by the options of a verb; what is not given is left out.

    Raises:
        click.UsageError: ``since`` is no duration.
    """
    query = {}
    if container:
        query["container"] = container
    if tail >= 0:
        query["tailLines"] = str(tail)
    if since:
        query["sinceSeconds"] = str(max(1, round(parse_duration(since))))
    return query


async def lines(
    opened: ApiSession, namespace: str, pod: str, query: Mapping[str, str]
) -> AsyncGenerator[list[bytes], None]:
    """Lines with their ends, as many at a time as arrive together; the last may have no end.

    Args:
        opened: the connection.
        namespace: of the pod.
        pod: its name.
        query: of the log request.

    Raises:
        ApiError: the server returns no log, or breaks off.
    """
    request = Request("GET", POD.path(namespace, pod, "log"), query=dict(query))
    response = await opened.fetch(request)
    if response.chunks is None:
        if found := response.body.splitlines(keepends=True):
            yield found
        return
    rest = b""
    async with aclosing(watch_stream.chunks_of(response)) as chunks:
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            if whole:
                yield [line + b"\n" for line in whole]
    if rest:
        yield [rest]
