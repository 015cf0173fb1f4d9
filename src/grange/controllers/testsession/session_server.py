"""The session service: coordination of components, uploads and reads of evidence, over HTTP.

Components are hostile input: names, sizes, counts and the number of calls that wait are bounded, and a
token is good for one session. State of barriers and topics is in a journal, so a restart keeps it.
"""

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import TestSession
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.client.client import Client
from grange.controllers.testsession.coordination import (
    ENTRY_BYTES,
    NAME,
    Coordination,
    CoordinationError,
    JournalEntry,
)
from grange.controllers.testsession.log_collector import key_of
from grange.evidence import private_files
from grange.evidence.artifact_store import ArtifactFile, ArtifactTooLarge
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError
from grange.evidence.evidence_paths import EvidenceKey, EvidencePathError, checked_uid
from grange.evidence.metric_series import MetricSeries

_LONGEST_POLL_S = 30.0
_MOST_WAITERS = 2000
_MOST_SESSIONS = 10_000  # that are remembered
_CLOSE_S = 1.0
_CHUNK = 256 * 1024
_MOST_RUNS = 100

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What the service works with.

    Attributes:
        client: finds sessions by their UIDs.
        directory: keeps the evidence.
        series: keeps the figures.
        clock: time.
        log: the logger.
        offload: the single lane of the evidence.
        key: that tokens of sessions are made with.
        reader_token: admits to the evidence of all sessions; empty for nobody.
    """

    client: Client
    directory: EvidenceDirectory
    series: MetricSeries
    clock: Clock
    log: Logger
    offload: Offload
    key: bytes
    reader_token: str = ""


@dataclass(frozen=True, slots=True)
class _Known:
    key: EvidenceKey
    artifact_bytes: int


class _Attempt:
    def __init__(self, coordination: Coordination, journal: Path) -> None:
        self.coordination = coordination
        self.journal = journal
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class SessionServer:
    """Serves until it is closed.

    Args:
        tools: what it works with.
        ca_pem: for components, of the certificate in ``context``.
        context: TLS; None for plain HTTP.

    Attributes:
        url: where it is served; empty until it is.
    """

    def __init__(
        self, tools: ServerTools, *, ca_pem: str = "", context: ssl.SSLContext | None = None
    ) -> None:
        self.url = ""
        self._tools = tools
        self._ca_pem = ca_pem
        self._context = context
        self._known: dict[str, _Known] = {}
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._opening = asyncio.Lock()
        self._waiters = 0
        self._runner: web.AppRunner | None = None

    # --- for the collector ---

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables by which the components of a session's attempt reach it."""
        if not self.url:
            return {}
        meta, attempt = session.metadata, session.status.attempt
        self._remember(session)
        variables = {
            "GRANGE_SESSION_URL": f"{self.url}/v1/sessions/{meta.uid}/{attempt}",
            "GRANGE_SESSION_TOKEN": self.token(meta.uid),
        }
        return variables | ({"GRANGE_SESSION_CA": self._ca_pem} if self._ca_pem else {})

    def evidence_url(self, session: TestSession) -> str:
        """Where the evidence of a session is read."""
        return f"{self.url}/v1/sessions/{session.metadata.uid}/evidence" if self.url else ""

    def token(self, uid: str) -> str:
        """What admits to a session."""
        return hmac.new(self._tools.key, uid.encode(), hashlib.sha256).hexdigest()

    # --- serving ---

    async def start(self, host: str, port: int) -> int:
        """Listen; the port.

        Raises:
            OSError: the address cannot be used.
        """
        application = web.Application(client_max_size=2 * ENTRY_BYTES, middlewares=[self._errors])
        session = "/v1/sessions/{uid}"
        attempt = f"{session}/{{attempt:[0-9]{{1,6}}}}"
        application.router.add_post(f"{attempt}/barriers/{{name}}", self._barrier)
        application.router.add_post(f"{attempt}/topics/{{name}}", self._publish)
        application.router.add_get(f"{attempt}/topics/{{name}}", self._subscribe)
        artifact = f"{attempt}/artifacts/{{component}}/{{path:.+}}"
        application.router.add_post(artifact, self._announce)
        application.router.add_put(artifact, self._upload)
        application.router.add_get(f"{session}/evidence", self._list)
        application.router.add_get(f"{session}/evidence/{{path:.+}}", self._read)
        application.router.add_get("/v1/series/{namespace}/{test}/{metric}", self._series)
        runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=_CLOSE_S, lingering_time=_CLOSE_S
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, ssl_context=self._context)
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        bound = int(runner.addresses[0][1])
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if self._context else 'http'}://{shown}:{bound}"
        return bound

    async def close(self) -> None:
        """Stop listening; calls that wait end."""
        self.url = ""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ArtifactTooLarge as error:
            return _refusal(413, str(error))
        except (CoordinationError, EvidencePathError) as error:
            return _refusal(400, str(error))
        except EvidenceError as error:
            return _refusal(404, str(error))
        except (GrangeError, ApiError) as error:
            self._tools.log.warning("request of a session failed", why=str(error))
            return _refusal(503, str(error))

    # --- coordination ---

    async def _barrier(self, request: web.Request) -> web.StreamResponse:
        attempt = await self._attempt(request)
        name, component = request.match_info["name"], request.query.get("component", "")
        entry = attempt.coordination.arrive(name, component, _integer(request, "count", 0))
        await self._note(attempt, entry)

        def is_open() -> bool:
            return attempt.coordination.barrier(name).is_open

        await self._wait(request, attempt, is_open)
        state = attempt.coordination.barrier(name)
        return _answer({"arrived": state.arrived, "count": state.count, "open": state.is_open})

    async def _publish(self, request: web.Request) -> web.StreamResponse:
        attempt = await self._attempt(request)
        try:
            text = (await request.read()).decode()
        except UnicodeDecodeError as error:
            raise CoordinationError("entry: it is no UTF-8; encode it") from error
        topic, component = request.match_info["name"], request.query.get("component", "")
        ident = request.query.get("id", "")
        await self._note(attempt, attempt.coordination.publish(topic, component, text, ident))
        return _answer({"offset": attempt.coordination.offset(topic, component, ident)})

    async def _subscribe(self, request: web.Request) -> web.StreamResponse:
        attempt = await self._attempt(request)
        topic, offset = request.match_info["name"], _integer(request, "offset", 0)

        def has_entries() -> bool:
            return bool(attempt.coordination.read(topic, offset, 1))

        await self._wait(request, attempt, has_entries)
        entries = attempt.coordination.read(topic, offset)
        return _answer({"entries": entries, "next": offset + len(entries)})

    async def _wait(
        self, request: web.Request, attempt: _Attempt, is_over: Callable[[], bool]
    ) -> None:
        """Wait until it is over or the caller's time is."""
        seconds = min(_LONGEST_POLL_S, float(_integer(request, "timeout", int(_LONGEST_POLL_S))))
        if is_over() or seconds <= 0:
            return
        if self._waiters >= _MOST_WAITERS:
            raise web.HTTPTooManyRequests(text="too many calls wait; try again later\n")
        self._waiters += 1
        try:
            with suppress(TimeoutError):
                async with self._tools.clock.timeout(seconds):
                    while not is_over():
                        await attempt.changed.wait()
        finally:
            self._waiters -= 1

    async def _attempt(self, request: web.Request) -> _Attempt:
        known = await self._admitted(request)
        number = int(request.match_info["attempt"])
        name = known.key.uid, number
        async with self._opening:
            if name not in self._attempts:
                place = self._tools.directory.path(known.key) / "coordination" / f"{number}.jsonl"
                entries = await self._tools.offload.run(lambda: self._read_journal(place))
                self._attempts[name] = _Attempt(Coordination(entries), place)
        return self._attempts[name]

    def _read_journal(self, place: Path) -> list[JournalEntry]:
        private_files.make_directory(place.parent, self._tools.directory.root)
        entries = []
        if place.exists():
            for line in place.read_bytes().splitlines():
                with suppress(msgspec.MsgspecError):  # the process ended within a write
                    entries.append(msgspec.json.decode(line, type=JournalEntry))
        return entries

    async def _note(self, attempt: _Attempt, entry: JournalEntry | None) -> None:
        """Write a change down, then wake those that wait for it."""
        if entry is None:
            return
        line = msgspec.json.encode(entry) + b"\n"

        def write() -> None:
            with attempt.journal.open("ab") as journal:
                journal.write(line)

        await self._tools.offload.run(write)
        attempt.wake()

    def forget(self, uid: str) -> None:
        """A session has ended: its barriers and topics are not needed any more."""
        self._known.pop(uid, None)
        for name in [name for name in self._attempts if name[0] == uid]:
            self._attempts.pop(name).wake()

    # --- evidence ---

    async def _announce(self, request: web.Request) -> web.StreamResponse:
        """Whether an artifact of a size would be kept: many clients read no answer while they send."""
        file = await self._opened(request, _integer(request, "size", 0))
        await self._tools.offload.run(file.close)
        return web.Response(status=204)

    async def _opened(self, request: web.Request, size: int | None) -> ArtifactFile:
        known = await self._admitted(request)
        component, path = request.match_info["component"], request.match_info["path"]
        if NAME.fullmatch(component) is None:
            raise CoordinationError("component: it is no name; give that of the component")
        attempt = int(request.match_info["attempt"])
        store = self._tools.directory.artifact_store(known.key)
        return await self._tools.offload.run(
            lambda: store.open(attempt, component, path, limit=known.artifact_bytes, size=size)
        )

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        offload = self._tools.offload
        file = await self._opened(request, request.content_length)
        try:
            async for chunk in request.content.iter_chunked(_CHUNK):
                await offload.run(lambda piece=chunk: file.write(piece))  # type: ignore[misc]  # called at once
            kept = await offload.run(file.commit)
        finally:
            await offload.run(file.close)
        return _answer({"path": kept.path, "size": kept.size}, 201)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        place = await self._place(request)
        files = await self._tools.offload.run(lambda: self._tools.directory.files(place))
        return _answer({"files": msgspec.to_builtins(files)})

    async def _read(self, request: web.Request) -> web.StreamResponse:
        place, path = await self._place(request), request.match_info["path"]
        file = await self._tools.offload.run(lambda: self._tools.directory.open_file(place, path))
        try:
            # What programs wrote must not become a page of this address.
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Disposition": "attachment",
                "X-Content-Type-Options": "nosniff",
            }
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            while chunk := await self._tools.offload.run(lambda: file.read(_CHUNK)):
                await response.write(chunk)
            await response.write_eof()
            return response
        finally:
            file.close()

    async def _place(self, request: web.Request) -> Path:
        uid = checked_uid(request.match_info["uid"])
        if not self._is_reader(request):
            self._check_token(request, uid)
        place = await self._tools.offload.run(lambda: self._tools.directory.find(uid))
        if place is None:
            raise EvidenceError("there is no evidence of this session; it may have been deleted")
        return place

    async def _series(self, request: web.Request) -> web.StreamResponse:
        if not self._is_reader(request):
            raise web.HTTPUnauthorized(text="a token for all sessions is needed\n")
        namespace, test, metric = (
            request.match_info[name] for name in ("namespace", "test", "metric")
        )
        count = max(1, min(_MOST_RUNS, _integer(request, "last", _MOST_RUNS)))
        points = await self._tools.offload.run(
            lambda: self._tools.series.last(namespace, test, metric, count)
        )
        return _answer({"points": msgspec.to_builtins(points)})

    # --- who may ---

    async def _admitted(self, request: web.Request) -> _Known:
        uid = checked_uid(request.match_info["uid"])
        self._check_token(request, uid)
        if uid not in self._known:
            for session in (await self._tools.client.list(TESTSESSION)).items:
                if session.metadata.uid == uid:
                    self._remember(session)
        if uid not in self._known:
            raise web.HTTPNotFound(text="there is no such session; it may have been deleted\n")
        return self._known[uid]

    def _remember(self, session: TestSession) -> None:
        while len(self._known) >= _MOST_SESSIONS:
            del self._known[next(iter(self._known))]
        limit = session.spec.evidence.max_artifact_bytes
        self._known[session.metadata.uid] = _Known(key_of(session), limit)

    def _check_token(self, request: web.Request, uid: str) -> None:
        if not hmac.compare_digest(_bearer(request), self.token(uid).encode()):
            raise web.HTTPUnauthorized(text="the token is not that of the session\n")

    def _is_reader(self, request: web.Request) -> bool:
        wanted = self._tools.reader_token.encode()
        return bool(wanted) and hmac.compare_digest(_bearer(request), wanted)


def _bearer(request: web.Request) -> bytes:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip().encode(errors="replace") if scheme.lower() == "bearer" else b""


def _integer(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isdecimal() or len(text) > 12:
        raise CoordinationError(f"{name}: {text[:40]!r} is no number; give one")
    return int(text)


def _answer(body: Document | dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )


def _refusal(status: int, message: str) -> web.Response:
    response = web.Response(text=f"{message}\n", status=status)
    response.force_close()  # what is left of an upload is not read
    return response
