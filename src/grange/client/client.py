"""The client: typed verbs over a transport.

Every deciding part of Grange talks to the API through this class and nothing else. Objects come
back as typed views; documents go out whole or as patches. Writes are never retried here: the work
queue is the one layer that retries. Reads wait and ask again when the server asks for it (429).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias, TypeVar

from grange.api.bindings import Binding
from grange.api.http import Request, Response
from grange.api.kinds import POD
from grange.api.meta import Document, Resource, preconditions
from grange.api.scheme import KindInfo
from grange.api.status import ApiError, Expired, Gone, TooManyRequests
from grange.base.clock import Clock, LoopClock
from grange.base.tasks import Nursery
from grange.client import bind_pods, requests
from grange.client.requests import Listing, LogOptions, PatchType
from grange.client.transport import Transport
from grange.client.watcher import Frames, WatchEvent

__all__ = ["Client", "Listing", "LogOptions", "PatchType", "WatchEvent"]

R = TypeVar("R", bound=Resource)
Outcomes: TypeAlias = list[ApiError | None]  # inside the class, ``list`` is the method

_READ_ATTEMPTS = 5
_LONGEST_WAIT_S = 30
_OBJECT_WRITES = frozenset({"POST", "PUT", "PATCH"})
_BINDINGS_AT_ONCE = 32  # of one group: each is a connection


class Client:
    """Verbs on the API.

    Every verb raises the ``ApiError`` that the server answered, ``ServiceUnavailable`` if the
    request did not get there, ``Timeout`` if it did and no answer came, and ``InternalError`` if
    the answer cannot be read. Cancelling a write leaves its outcome unknown.

    Args:
        transport: what carries the requests.
        clock: for the waits that a server asks of reads; the running loop's by default.
        strict: have the server refuse fields that it does not know, as kubectl does; by default it
            drops them with a warning.
    """

    def __init__(
        self, transport: Transport, *, clock: Clock | None = None, strict: bool = False
    ) -> None:
        self._transport = transport
        self._strict = strict
        self._clock = clock or LoopClock()
        self._groups_served = True  # as far as we know

    async def get(
        self, kind: KindInfo[R], name: str, namespace: str = "", *, subresource: str = ""
    ) -> R:
        """Read one object, or a subresource of it in the fields of the kind's view.

        A ``scale`` shares ``spec.replicas`` and ``status.replicas`` with the views of the kinds
        that have it; ``get_document`` reads it whole.

        Raises:
            NotFound: there is none of this name, or no such subresource.
        """
        body = await self._read(requests.get(kind, name, namespace, subresource=subresource))
        return requests.decode_object(kind.view, body, f"{kind.qualified} {name!r}")

    async def get_document(
        self, kind: KindInfo[R], name: str, namespace: str = "", *, subresource: str = ""
    ) -> Document:
        """Read one object or subresource whole, with the fields that its view does not name.

        Raises:
            NotFound: there is none of this name, or no such subresource.
        """
        body = await self._read(requests.get(kind, name, namespace, subresource=subresource))
        return requests.decode_document(body, f"{kind.qualified} {name!r}")

    async def list(
        self,
        kind: KindInfo[R],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        cont: str = "",
        resource_version: str = "",
    ) -> Listing[R]:
        """Read a collection, or one page of it.

        Args:
            kind: what to list.
            namespace: only this namespace; empty means all.
            labels: label selector.
            fields: field selector.
            limit: at most so many objects; zero means all.
            cont: ``next`` of the page before.
            resource_version: not older than this; empty means the newest.

        Raises:
            Expired: the pages before are too old to go on from; start again.
        """
        request = requests.list_page(
            kind,
            namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            cont=cont,
            resource_version=resource_version,
        )
        return requests.decode_list(kind, await self._read(request))

    async def watch(
        self,
        kind: KindInfo[R],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout_s: float | None = None,
    ) -> AsyncGenerator[WatchEvent[R], None]:
        """Follow a collection; close the generator (``contextlib.aclosing``) when done with it.

        Args:
            kind: what to watch.
            namespace: only this namespace; empty means all.
            resource_version: deliver what happened after this version.
            labels: label selector.
            fields: field selector.
            timeout_s: the server ends the watch after so many seconds.

        Yields:
            Events in the order of their versions, bookmarks included; returns when the server
            ends the watch normally.

        Raises:
            Expired: the version is no longer (or not yet) known; list again.
            ServiceUnavailable: the stream broke.
        """
        batches = self.watch_batches(
            kind,
            namespace,
            resource_version=resource_version,
            labels=labels,
            fields=fields,
            timeout_s=timeout_s,
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    yield event

    async def watch_batches(
        self,
        kind: KindInfo[R],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Sequence[WatchEvent[R]], None]:
        """``watch``, but all the events that arrived together at once: for caches."""
        request = requests.watch(
            kind,
            namespace,
            resource_version=resource_version,
            labels=labels,
            fields=fields,
            timeout_s=timeout_s,
        )
        frames = Frames(kind)
        chunks = await self._stream(request)
        try:
            async for chunk in chunks:
                events = frames.feed(chunk)
                if events:
                    yield events
                if frames.error is not None:
                    raise frames.error
            frames.finish()
        finally:
            await _close(chunks)

    async def create(
        self,
        kind: KindInfo[R],
        obj: R | Document,
        namespace: str = "",
        *,
        dry_run: bool = False,
    ) -> R:
        """Create an object and return what the server made of it.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: the object breaks a rule; ``causes`` name the fields.
        """
        body = await self._write(requests.create(kind, obj, namespace, dry_run=dry_run))
        return requests.decode_object(kind.view, body, f"create {kind.qualified}")

    async def update(self, kind: KindInfo[R], obj: R | Document, *, subresource: str = "") -> R:
        """Replace an object, if it is still at the ``resourceVersion`` that it carries.

        A view names only the fields we read: update with a full document, or patch, unless the
        view is known to be whole (for example a Lease).

        Raises:
            Conflict: it changed since it was read.
            NotFound: it is gone.
        """
        body = await self._write(requests.update(kind, obj, subresource=subresource))
        return requests.decode_object(kind.view, body, f"update {kind.qualified}")

    async def patch(
        self,
        kind: KindInfo[R],
        name: str,
        namespace: str = "",
        *,
        patch: Document | Sequence[Document],
        type: PatchType = "merge",  # noqa: A002  the field's word for it
        subresource: str = "",
    ) -> R:
        """Change part of an object.

        ``metadata.uid`` and ``metadata.resourceVersion`` in the patch are its fence.

        Raises:
            Conflict: the fence does not hold.
            NotFound: it is gone.
            Invalid: the result breaks a rule.
        """
        request = requests.patch(
            kind, name, namespace, patch=patch, media=type, subresource=subresource
        )
        body = await self._write(request)
        return requests.decode_object(kind.view, body, f"patch {kind.qualified} {name!r}")

    async def patch_as_read(
        self, kind: KindInfo[R], read: R, change: Document, *, subresource: str = ""
    ) -> R:
        """Merge a change into an object if it is still of the version that was read; see ``patch``.

        Raises:
            NotFound: there is none.
            Conflict: it has changed since, or is another of that name.
        """
        meta = read.metadata
        patch = {**change, "metadata": {**change.get("metadata", {}), **preconditions(meta)}}
        return await self.patch(
            kind, meta.name, meta.namespace, patch=patch, subresource=subresource
        )

    async def delete(  # noqa: PLR0913  the options of the API
        self,
        kind: KindInfo[R],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
        finalizer: str = "",
    ) -> None:
        """Delete an object; returns when the server accepted it, which may be before it is gone.

        Args:
            kind: what to delete.
            name: its name.
            namespace: its namespace.
            uid: only if it is this very object.
            resource_version: only if it has not changed since.
            grace_period_s: seconds for its programs to end; None is the object's own, 0 now.
            propagation: Background, Foreground or Orphan for what it owns; empty is the kind's.
            finalizer: of the caller, removed from the object in the same write where the server
                takes that (ours does); on others the object waits until it is removed.

        Raises:
            NotFound: there is none.
            Conflict: a precondition does not hold.
        """
        request = requests.delete(
            kind,
            name,
            namespace,
            uid=uid,
            resource_version=resource_version,
            grace_period_s=grace_period_s,
            propagation=propagation,
            finalizer=finalizer,
        )
        await self._write(request)

    async def delete_as_read(
        self,
        kind: KindInfo[R],
        read: Resource,
        *,
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete an object if it is still of the version that was read; see ``delete``.

        Raises:
            NotFound: there is none.
            Conflict: it has changed since, or is another of that name.
        """
        meta = read.metadata
        await self.delete(
            kind,
            meta.name,
            meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            grace_period_s=grace_period_s,
            propagation=propagation,
        )

    async def evict(
        self, name: str, namespace: str, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete a pod if its PodDisruptionBudget allows that now; see ``delete``.

        Raises:
            TooManyRequests: the budget does not.
            NotFound: there is none.
            Conflict: a precondition does not hold.
        """
        await self._write(requests.evict(name, namespace, uid, resource_version))

    async def post(
        self, kind: KindInfo[R], name: str, namespace: str, subresource: str, body: Document
    ) -> Document:
        """Post to a subresource (a pod's ``binding``) and return the answer."""
        answer = await self._write(requests.post(kind, name, namespace, subresource, body))
        return requests.decode_document(answer, f"{subresource} of {kind.qualified} {name!r}")

    async def bind(self, group: Sequence[Binding]) -> Outcomes:
        """Give pods their nodes; each binding is accepted or refused for itself.

        Many go in one request where the server takes that (ours does), else each in a
        separate one, some at once.

        Args:
            group: at most ``api.bindings.LIMIT``.

        Returns:
            For each, in order, None when the pod has its node, or the error: ``NotFound`` without
            such a pod, ``Conflict`` if it has a node or is another pod of that name; a ``Timeout``
            or ``InternalError`` of the whole request is the answer to each of the group.
        """
        if len(group) > 1 and self._groups_served:
            request = bind_pods.many(group)
            try:
                return bind_pods.outcomes(await self._write(request), len(group))
            except bind_pods.NOT_SERVED:
                self._groups_served = False
            except ApiError as error:
                return [error] * len(group)
        outcomes: Outcomes = [None] * len(group)

        waiting = iter(range(len(group)))

        async def bind() -> None:
            for at in waiting:
                try:
                    await self._write(bind_pods.one(group[at]))
                except ApiError as error:
                    outcomes[at] = error

        async with Nursery("bindings") as nursery:
            for _ in range(min(len(group), _BINDINGS_AT_ONCE)):
                nursery.start(bind(), name="binding")
        return outcomes

    async def logs(
        self,
        name: str,
        namespace: str = "",
        *,
        container: str = "",
        follow: bool = False,
        options: LogOptions | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Read a pod's log in pieces; close the generator when done with it.

        Args:
            name: the pod.
            namespace: its namespace.
            container: which container; empty means the only one.
            follow: go on as lines are written, until the container ends.
            options: everything else; where given, it replaces the two above.

        Raises:
            NotFound: no such pod.
            BadRequest: the container is not named or has not started.
            ServiceUnavailable: the stream broke.
        """
        wanted = options or LogOptions(container=container, follow=follow)
        chunks = await self._stream(requests.logs(POD, name, namespace, wanted))
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await _close(chunks)

    async def raw(self, request: Request) -> Response:
        """Carry a request as it is and return the answer as it is: for surfaces.

        Raises:
            ServiceUnavailable, Timeout: there was no answer.
        """
        return await self._send(request)

    async def _read(self, request: Request) -> bytes:
        attempt = 1
        while True:
            try:
                return await self._write(request)
            except TooManyRequests as busy:
                wait_s = busy.details.retry_after_seconds
                if attempt >= _READ_ATTEMPTS or not 0 < wait_s <= _LONGEST_WAIT_S:
                    raise
            await self._clock.sleep(wait_s)
            attempt += 1

    async def _send(self, request: Request) -> Response:
        if self._strict and request.method in _OBJECT_WRITES:
            query = {"fieldValidation": "Strict", **request.query}
            request = replace(request, query=query)
        return await self._transport.send(request)

    async def _write(self, request: Request) -> bytes:
        response = await self._send(request)
        body = response.body if response.chunks is None else await _collect(response.chunks)
        error = requests.failure(response, body)
        if error is not None:
            raise error
        return body

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        response = await self._transport.send(request)
        if 200 <= response.status < 300:
            return response.chunks if response.chunks is not None else _once(response.body)
        body = response.body if response.chunks is None else await _collect(response.chunks)
        error = requests.failure(response, body)
        if isinstance(error, Gone) and not isinstance(error, Expired):
            error = Expired(error.message)
        raise error or ApiError(f"the server answered {response.status}")


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _collect(chunks: AsyncIterator[bytes]) -> bytes:
    try:
        return b"".join([chunk async for chunk in chunks])
    finally:
        await _close(chunks)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    close = getattr(chunks, "aclose", None)  # not every closable stream is a generator
    if close is not None:
        await close()
