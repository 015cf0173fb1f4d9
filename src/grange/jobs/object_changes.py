"""Objects as they are, and again after each change, through servers that are away for a while."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TypeVar

from grange.api.meta import Resource
from grange.api.scheme import KindInfo
from grange.api.status import (
    Expired,
    InternalError,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
)
from grange.base.clock import Clock
from grange.client.client import Client
from grange.client.watcher import ADDED, DELETED, MODIFIED

R = TypeVar("R", bound=Resource)

_TRANSIENT = (Expired, ServiceUnavailable, Timeout, TooManyRequests, InternalError)
_RETRY_S = 0.5


async def object_changes(
    client: Client,
    clock: Clock,
    kind: KindInfo[R],
    namespace: str,
    *,
    labels: str = "",
    fields: str = "",
) -> AsyncGenerator[Mapping[str, R], None]:
    """The objects by name, without an end; errors that may pass are tried again.

    Args:
        client: the connection.
        clock: for pauses.
        kind: what to follow.
        namespace: only this one.
        labels: label selector.
        fields: field selector.
    """
    while True:
        try:
            listing = await client.list(kind, namespace, labels=labels, fields=fields)
            found = {item.metadata.name: item for item in listing.items}
            yield found
            events = client.watch(
                kind,
                namespace,
                resource_version=listing.resource_version,
                labels=labels,
                fields=fields,
            )
            async with aclosing(events):
                async for event in events:
                    name = event.object.metadata.name
                    if event.type == DELETED:
                        found.pop(name, None)
                    elif event.type in (ADDED, MODIFIED):
                        found[name] = event.object
                    else:
                        continue
                    yield found
        except _TRANSIENT:
            await clock.sleep(_RETRY_S)
