"""Evidence of sessions over HTTP: uploads of components, files and figures for readers."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec
from aiohttp import web

from grange.base.clock import Clock
from grange.base.offload import Offload
from grange.controllers.testsession.coordination import CoordinationError
from grange.controllers.testsession.session_access import SessionAccess
from grange.controllers.testsession.session_messages import answer, integer
from grange.evidence.artifact_store import ArtifactFile
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError
from grange.evidence.evidence_paths import checked_uid
from grange.evidence.metric_series import MetricSeries
from grange.evidence.session_record import SessionRecord

_CHUNK = 256 * 1024
_MOST_RUNS = 100
_CONNECT_S = 2.0


class EvidenceHandlers:
    """Answers requests for artifacts, files and figures.

    Args:
        access: admits components and readers.
        base_url: where this service is served; empty while it is not.
        directory: keeps the evidence.
        series: keeps the figures.
        offload: the single lane of the evidence.
        clock: of the time that another service may take to answer.
    """

    def __init__(
        self,
        access: SessionAccess,
        base_url: Callable[[], str],
        directory: EvidenceDirectory,
        series: MetricSeries,
        offload: Offload,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._access, self._directory = access, directory
        self._base_url = base_url
        self._series, self._offload = series, offload

    async def announce(self, request: web.Request) -> web.StreamResponse:
        """Whether an artifact of a size would be kept: many clients read no answer while they send."""
        file = await self._opened(request, integer(request, "size", 0))
        await self._offload.run(file.close)
        return web.Response(status=204)

    async def _opened(self, request: web.Request, size: int | None) -> ArtifactFile:
        known, attempt = await self._access.admitted(request)
        component, path = request.match_info["component"], request.match_info["path"]
        if component not in known.members:
            raise CoordinationError(
                f"component: {component[:80]!r} is none of the session; "
                "give the value of GRANGE_SESSION_COMPONENT"
            )
        store = self._directory.artifact_store(known.key)
        return await self._offload.run(
            lambda: store.open(attempt, component, path, limit=known.artifact_bytes, size=size)
        )

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Keep the body as an artifact."""
        offload = self._offload
        file = await self._opened(request, request.content_length)
        try:
            async for chunk in request.content.iter_chunked(_CHUNK):
                await offload.run(lambda piece=chunk: file.write(piece))  # type: ignore[misc]  # called at once
            kept = await offload.run(file.commit)
        finally:
            await offload.run(file.close)
        return answer({"path": kept.path, "size": kept.size}, 201)

    async def list(self, request: web.Request) -> web.StreamResponse:
        """The files of a session."""
        place = await self._place(request)
        files = await self._offload.run(lambda: self._directory.files(place))
        return answer({"files": msgspec.to_builtins(files)})

    async def read(self, request: web.Request) -> web.StreamResponse:
        """One file of a session."""
        place, path = await self._place(request), request.match_info["path"]
        file = await self._offload.run(lambda: self._directory.open_file(place, path))
        try:
            # What programs wrote must not become a page of this address.
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Disposition": "attachment",
                "X-Content-Type-Options": "nosniff",
            }
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            while chunk := await self._offload.run(lambda: file.read(_CHUNK)):
                await response.write(chunk)
            await response.write_eof()
            return response
        finally:
            file.close()

    async def _place(self, request: web.Request) -> Path:
        uid = checked_uid(request.match_info["uid"])
        self._access.check_reader_of(request, uid)
        directory, offload = self._directory, self._offload
        place = await offload.run(lambda: directory.find(uid))
        record = None
        if place is not None:
            record = await offload.run(lambda: directory.find_record(place))
        if record is None or not record.has_last_attempt:
            await self._refer(request, uid, record)
        if place is None:
            raise EvidenceError("there is no evidence of this session; it may have been deleted")
        return place

    async def _refer(self, request: web.Request, uid: str, record: SessionRecord | None) -> None:
        """Send the reader to the service that has collected the evidence, if another has.

        Args:
            request: of the reader.
            uid: of the session.
            record: what this service has collected; its address may have changed since.

        Raises:
            HTTPTemporaryRedirect: it has.
            EvidenceError: it has, and does not answer.
            ApiError: sessions cannot be read.
        """
        address = await self._access.evidence_url(uid)
        if record is not None and record.evidence_url == address:
            return
        url = urlsplit(address)
        if url.netloc and url.netloc != urlsplit(self._base_url()).netloc:
            if why := await self._unreachable(url):
                raise EvidenceError(
                    f"the evidence was collected by the service at {url.netloc}, which does not answer: "
                    f"{why}; if its member is gone for good, so are the logs, artifacts and record "
                    "that it kept"
                )
            there = f"{url.scheme}://{url.netloc}{request.rel_url.raw_path}"
            raise web.HTTPTemporaryRedirect(there, text=f"the evidence is at {there}\n")

    async def _unreachable(self, url: SplitResult) -> str:
        """Why a service cannot be reached; empty if it can."""
        try:
            async with self._clock.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(url.hostname, url.port)
        except TimeoutError:
            return f"no connection within {_CONNECT_S:g} s"
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return ""

    async def series(self, request: web.Request) -> web.StreamResponse:
        """The last figures of a test."""
        self._access.check_reader(request)
        namespace, test, metric = (
            request.match_info[name] for name in ("namespace", "test", "metric")
        )
        count = max(1, min(_MOST_RUNS, integer(request, "last", _MOST_RUNS)))
        verdict = request.query.get("verdict", "")
        points = await self._offload.run(
            lambda: self._series.last(namespace, test, metric, count, verdict=verdict)
        )
        return answer({"points": msgspec.to_builtins(points)})
