"""An object that is waited for, and its pods where they matter, kept up to date by watches."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress

from grange.api.codec import decode_document
from grange.api.http import Request
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import (
    Expired,
    Forbidden,
    InternalError,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
)
from grange.cli import rollout_status, watch_stream
from grange.cli.session import ApiSession

_RETRY_S = 0.5

TRANSIENT = (Expired, ServiceUnavailable, Timeout, TooManyRequests, InternalError)
"""Errors of a server that may answer the next time; what waits for long goes on after them."""


class WatchedObject:
    """An object and its pods as last seen; ``watch`` keeps them up to date.

    Attributes:
        document: the object; None while it is not there.
        pods: pods of its namespace, its own among them; None where they do not matter or the user
            may not list them.
        is_known: all of it has been read at least once.
        is_silent: the server does not answer.
    """

    def __init__(
        self, session: ApiSession, kind: AnyKind, name: str, namespace: str, *, pods: bool
    ) -> None:
        self._session = session
        self._kind, self._name, self._namespace = kind, name, namespace
        self._changed = asyncio.Event()
        self._selector = rollout_status.pod_selector(kind, name) if pods else ""
        self._unread = {"object", "pods"} if self._selector else {"object"}
        self.watches: list[Callable[[], Coroutine[object, object, None]]] = [self._watch_object]
        if "pods" in self._unread:
            self.watches.append(self._watch_pods)
        self.document: Document | None = None
        self.pods: list[Document] | None = None
        self.is_silent = False

    @property
    def is_known(self) -> bool:
        """Whether the object, and its pods where they matter, have been read."""
        return not self._unread

    async def changed(self, within_s: float | None) -> None:
        """Wait until anything changes, or for so many seconds."""
        with suppress(TimeoutError):
            async with self._session.env.clock.timeout(within_s):
                await self._changed.wait()
        self._changed.clear()

    async def _watch_object(self) -> None:
        while True:
            answered = False
            try:
                self._see_object(await self._read())
                answered = True
                query = {"fieldSelector": f"metadata.name={self._name}"}
                async with aclosing(
                    watched(self._session, self._kind, self._namespace, query)
                ) as seen:
                    async for items in seen:
                        self._see_object(items.get(self._name))
            except TRANSIENT:
                # A watch that breaks off is ordinary; a request without an answer is not.
                self.is_silent = not answered
                self._changed.set()
            await self._session.env.clock.sleep(_RETRY_S)

    async def _read(self) -> Document | None:
        try:
            return await self._session.document(self._kind, self._name, self._namespace)
        except NotFound:
            return None

    async def _watch_pods(self) -> None:
        query = {"labelSelector": self._selector}
        while True:
            try:
                async with aclosing(watched(self._session, POD, self._namespace, query)) as seen:
                    async for items in seen:
                        self._see_pods([*items.values()])
            except TRANSIENT:
                pass  # the other watch reports it
            except Forbidden:
                self._see_pods(None)
                return
            await self._session.env.clock.sleep(_RETRY_S)

    def _see_object(self, document: Document | None) -> None:
        self.document, self.is_silent = document, False
        self._unread.discard("object")
        self._changed.set()

    def _see_pods(self, pods: list[Document] | None) -> None:
        self.pods = pods
        self._unread.discard("pods")
        self._changed.set()


async def watched(
    session: ApiSession, kind: AnyKind, namespace: str, query: Mapping[str, str]
) -> AsyncGenerator[dict[str, Document], None]:
    """The objects: as they are now, then after every change.

    They are by name; those of all namespaces, of a kind that has one, by ``namespace/name``.

    Raises:
        Expired, ServiceUnavailable: the stream broke; start again.
    """
    path = kind.path(namespace)
    body = decode_document((await session.fetch(Request("GET", path, query=dict(query)))).body)
    everywhere = kind.namespaced and not namespace
    found = {
        _key(item, everywhere=everywhere): {"kind": kind.kind, **item}
        for item in body.get("items") or []
    }
    yield found
    version = {"watch": "true", "resourceVersion": body["metadata"]["resourceVersion"]}
    response = await session.fetch(Request("GET", path, query={**query, **version}))
    async with aclosing(watch_stream.events(response)) as events:
        async for event in events:
            if event.type == "BOOKMARK":
                continue
            key = _key(event.object, everywhere=everywhere)
            if event.type == "DELETED":
                found.pop(key, None)
            else:
                found[key] = {"kind": kind.kind, **event.object}
            yield found


def _key(document: Document, *, everywhere: bool) -> str:
    meta = document["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if everywhere else str(meta["name"])
