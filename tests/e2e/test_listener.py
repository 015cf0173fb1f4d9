"""The listener on real sockets: what it bounds, how it answers what is malformed, how it ends."""

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S

from grange.api.http import ADMIN, ANONYMOUS, Request, Response
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.api.status import Conflict, Forbidden
from grange.apiserver.authn import StaticTokens
from grange.apiserver.connections import ConnectionLimits
from grange.apiserver.listener import BODY_MAX_BYTES, Limits, Listener
from grange.apiserver.request_audit import CLIENT_GONE, RequestAudit
from grange.app import certificates
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

pytestmark = pytest.mark.e2e
BEARER = "a-token"
SIZES = {"/medium": 50_000, "/large": 500_000, "/huge": 50_000_000}


@dataclass
class Handler:
    """Echoes, streams and waits."""

    seen: list[Request] = field(default_factory=list)
    answers: dict[str, Response] = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        if request.path in self.answers:
            return self.answers[request.path]
        match request.path:
            case "/stream":
                return Response(200, chunks=self.stream())
            case "/broken":
                return Response(200, chunks=self.broken())
            case "/bug":
                return Response(200, chunks=self.bug())
            case "/fault":
                raise ZeroDivisionError("secret detail")
            case "/endless":
                return Response(200, chunks=self.endless())
            case "/medium" | "/large" | "/huge":
                self.entered.set()
                return Response(200, b"x" * SIZES[request.path], "text/plain")
            case "/slow":
                self.entered.set()
                await self.stop.wait()
        return Response(200, json.dumps({"got": len(request.body)}).encode(), headers={"X-A": "b"})

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one\n"
            await self.stop.wait()
            yield b"two\n"
        finally:
            self.ended.set()

    async def broken(self) -> AsyncGenerator[bytes, None]:
        yield b"one\n"
        raise Conflict("it broke")

    async def bug(self) -> AsyncGenerator[bytes, None]:
        yield b"one\n"
        raise ZeroDivisionError("secret detail")

    async def endless(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 65_536
        finally:
            self.ended.set()


@dataclass
class Answer:
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> Document:
        document: Document = json.loads(self.body)
        assert document["kind"] == "Status"
        assert document["code"] == self.code
        return document


class Wire:
    """One connection, spoken by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    def ask(self, method: str, target: str, body: bytes = b"", *headers: str) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: x", *headers]
        if method == "POST" and not any(line.startswith("Authorization") for line in headers):
            lines.append(f"Authorization: Bearer {BEARER}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def head(self) -> Answer:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(": ") for line in raw[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        return Answer(int(raw[0].split()[1]), headers, b"")

    async def answer(self, *, bodiless: bool = False) -> Answer:
        found = await self.head()
        if not bodiless:
            found.body = await self.reader.readexactly(int(found.headers["content-length"]))
        return found

    async def chunk(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Harness:
    """A listener with its handler, and connections to it."""

    def __init__(self, listener: Listener, handler: Handler) -> None:
        self.listener = listener
        self.handler = handler

    @asynccontextmanager
    async def wire(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
        opened = Wire(*await asyncio.open_connection("127.0.0.1", self.listener.port, ssl=tls))
        try:
            yield opened
        finally:
            await opened.close()


def refuse(request: Request) -> None:
    if request.path == "/forbidden":
        raise Forbidden("not you")


Start = Callable[..., "contextlib.AbstractAsyncContextManager[Harness]"]


@pytest.fixture
def start(clock: Clock, log: Logger) -> Start:
    @asynccontextmanager
    async def started(
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        audit: RequestAudit | None = None,
    ) -> AsyncIterator[Harness]:
        handler = Handler()
        listener = Listener(
            handler,
            authenticator=StaticTokens({BEARER: ADMIN}),
            ssl_context=tls,
            clock=clock,
            log=log,
            drain=handler.stop.set,
            admit=refuse,
            audit=audit,
            limits=limits,
        )
        async with listener:
            yield Harness(listener, handler)

    return started


async def test_requests_arrive_decoded_and_answers_leave_whole(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.ask("POST", "/a%20b/c?x=1%2C2&y=&x=3", b"12345", f"Authorization: Bearer {BEARER}")
        answer = await wire.answer()
        assert (answer.code, answer.body) == (200, b'{"got": 5}\n')
        assert answer.headers["x-a"] == "b"
        assert answer.headers["content-type"] == "application/json"
        assert parsedate_to_datetime(answer.headers["date"]).tzinfo is not None
        seen = harness.handler.seen[0]
        assert (seen.method, seen.path, dict(seen.query)) == ("POST", "/a b/c", {"x": "3", "y": ""})
        assert (seen.body, seen.user) == (b"12345", ADMIN)
        wire.ask("GET", "/again")
        assert (await wire.answer()).code == 200
        assert harness.handler.seen[1].user == ANONYMOUS
        wire.ask("GET", "/large")
        assert len((await wire.answer()).body) == 500_000
        wire.ask("HEAD", "/head")
        assert (await wire.answer(bodiless=True)).headers["content-length"] == "11"


async def test_https_is_spoken_with_our_own_authority(
    start: Start, tmp_path: Path, clock: Clock
) -> None:
    keys = certificates.ensure(tmp_path, names=("127.0.0.1",), now=clock.now())
    client = ssl.create_default_context(cadata=keys.ca_pem.decode())
    async with start(tls=keys.server_context()) as harness:
        assert harness.listener.url.startswith("https://127.0.0.1:")
        async with harness.wire(client) as wire:
            wire.ask("GET", "/")
            assert (await wire.answer()).code == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            async with harness.wire(ssl.create_default_context()):
                pass


async def test_unknown_credential_is_refused_before_the_handler(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.ask("GET", "/", b"", "Authorization: Bearer wrong")
        answer = await wire.answer()
        assert (answer.code, answer.status["reason"]) == (401, "Unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert harness.handler.seen == []


async def test_body_beyond_the_limit_is_refused_however_it_is_sent(start: Start) -> None:
    async with start() as harness:
        async with harness.wire() as wire:
            wire.ask("POST", "/", b"", f"Content-Length: {BODY_MAX_BYTES + 1}")
            assert (await wire.answer()).status["reason"] == "RequestEntityTooLarge"
        async with harness.wire() as wire:
            wire.ask("POST", "/", b"", "Transfer-Encoding: chunked")
            piece = b"%x\r\n%b\r\n" % (65_536, b"x" * 65_536)
            for _ in range(BODY_MAX_BYTES // 65_536 + 1):
                wire.send(piece)
            assert (await wire.answer()).code == 413
        assert harness.handler.seen == []
        async with harness.wire() as wire:
            wire.ask("POST", "/", b"x" * BODY_MAX_BYTES)
            assert json.loads((await wire.answer()).body) == {"got": BODY_MAX_BYTES}


async def test_chunked_body_is_read(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.ask("POST", "/", b"", "Transfer-Encoding: chunked")
        wire.send(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert json.loads((await wire.answer()).body) == {"got": 5}


async def test_client_that_asks_first_is_asked_to_go_on(start: Start) -> None:
    """curl does with large bodies, and waits a second where it is not answered."""
    async with start() as harness, harness.wire() as wire:
        wire.ask("POST", "/", b"", "Content-Length: 3", "Expect: 100-continue")
        assert (await wire.head()).code == 100
        wire.send(b"abc")
        assert json.loads((await wire.answer()).body) == {"got": 3}
        wire.ask("POST", "/", b"", "Content-Length: 99999999", "Expect: 100-continue")
        assert (await wire.answer()).code == 413


async def test_connection_that_sends_no_head_is_closed(start: Start) -> None:
    limits = Limits(head_s=0.2)
    async with start(limits) as harness, harness.wire() as silent, harness.wire() as dripping:
        dripping.send(b"GET / HTTP/1.1\r\nHost:")
        assert await silent.ended()
        assert await dripping.ended()


async def test_connection_that_sends_no_body_is_answered_and_closed(start: Start) -> None:
    async with start(Limits(body_s=0.2)) as harness, harness.wire() as wire:
        wire.ask("POST", "/", b"", "Content-Length: 10")
        wire.send(b"12")
        answer = await wire.answer()
        assert (answer.code, answer.status["reason"]) == (504, "Timeout")
        assert await wire.ended()
        assert harness.handler.seen == []


async def test_idle_connection_is_closed(start: Start) -> None:
    async with start(Limits(idle_s=0.2)) as harness, harness.wire() as wire:
        wire.ask("GET", "/")
        assert (await wire.answer()).code == 200
        assert await wire.ended()


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: minus\r\n\r\n",
    ],
    ids=["no-http", "bad-header", "long-header", "long-target", "bad-length"],
)
async def test_malformed_request_is_a_bad_request_with_a_status(start: Start, raw: bytes) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.send(raw)
        answer = await wire.answer()
        assert (answer.code, answer.status["reason"]) == (400, "BadRequest")
        assert await wire.ended()
        assert harness.handler.seen == []


async def test_older_client_gets_its_answer_and_the_end(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await wire.answer()).code == 200
        assert await wire.ended()


async def test_stream_arrives_as_it_is_made(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.ask("GET", "/stream")
        head = await wire.head()
        assert (head.code, head.headers["transfer-encoding"]) == (200, "chunked")
        assert await wire.chunk() == b"one\n"
        harness.handler.stop.set()
        assert await wire.chunk() == b"two\n"
        assert await wire.chunk() == b""
        assert harness.handler.ended.is_set()
        wire.ask("GET", "/again")
        assert (await wire.answer()).code == 200


async def test_client_that_goes_away_closes_its_stream(start: Start, clock: Clock) -> None:
    async with start() as harness:
        async with harness.wire() as wire:
            wire.ask("GET", "/stream")
            await wire.head()
            assert await wire.chunk() == b"one\n"
        async with clock.timeout(LIMIT_S):
            await harness.handler.ended.wait()


async def test_stream_that_breaks_ends_without_an_end(start: Start) -> None:
    """The client must be able to distinguish a broken stream from one that is complete."""
    async with start() as harness, harness.wire() as wire:
        wire.ask("GET", "/broken")
        await wire.head()
        assert await wire.chunk() == b"one\n"
        assert await wire.ended()


async def test_bug_is_logged_and_distinguished_from_an_end(
    start: Start, records: list[tuple[str, dict[str, object]]]
) -> None:
    async with start() as harness:
        async with harness.wire() as wire:
            wire.ask("GET", "/bug")
            await wire.head()
            assert await wire.chunk() == b"one\n"
            assert await wire.ended()
        async with harness.wire() as wire:
            wire.ask("GET", "/fault")
            answer = await wire.answer()
            assert answer.status["reason"] == "InternalError"
            assert b"secret" not in answer.body
    assert [event for event, _ in records].count("request failed") == 2


async def test_client_that_leaves_during_a_write_is_no_failure(
    start: Start, clock: Clock, records: list[tuple[str, dict[str, object]]]
) -> None:
    async with start() as harness:
        async with harness.wire() as wire:
            wire.ask("GET", "/endless")
            await wire.head()
            await wire.chunk()
            wire.writer.transport.abort()
        async with clock.timeout(LIMIT_S):
            await harness.handler.ended.wait()
    assert "request failed" not in [event for event, _ in records]


async def test_older_client_gets_stream_that_ends_with_connection(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        harness.handler.stop.set()
        wire.send(b"GET /stream HTTP/1.0\r\n\r\n")
        await wire.head()
        assert await wire.reader.read() == b"one\ntwo\n"


async def test_closing_ends_streams_in_order_and_lets_requests_finish(start: Start) -> None:
    async with start() as harness, harness.wire() as stream, harness.wire() as slow:
        stream.ask("GET", "/stream")
        await stream.head()
        assert await stream.chunk() == b"one\n"
        slow.ask("GET", "/slow")
        await harness.handler.entered.wait()
        await harness.listener.close()
        assert await stream.chunk() == b"two\n"
        assert await stream.chunk() == b""
        assert (await slow.answer()).code == 200
        assert await stream.ended()
        with pytest.raises(OSError):  # noqa: PT011  refused or reset, as the system likes
            async with harness.wire():
                pass


async def test_closing_does_not_wait_for_ever(start: Start, clock: Clock) -> None:
    async with start(Limits(close_s=0.2)) as harness, harness.wire() as wire:
        harness.listener._drain = None  # the handler is not asked to end
        wire.ask("GET", "/slow")
        await harness.handler.entered.wait()
        async with clock.timeout(LIMIT_S):
            await harness.listener.close()
        assert await wire.ended()


async def test_address_in_use_is_an_error_that_names_it(
    start: Start, clock: Clock, log: Logger
) -> None:
    async with start() as harness:
        other = Listener(
            harness.handler,
            authenticator=None,
            ssl_context=None,
            clock=clock,
            log=log,
            port=harness.listener.port,
        )
        with pytest.raises(OSError, match="address already in use"):
            await other.start()
        await other.close()
        assert other.port == 0


JSON_BODIES = {
    "/object": (Response(200, b'{"a":1}'), b'{"a":1}\n'),
    "/list": (Response(200, b'{"items":[]}\n'), b'{"items":[]}\n'),
    "/long": (
        Response(200, b'{"a":"' + b"x" * 200_000 + b'"}'),
        b'{"a":"' + b"x" * 200_000 + b'"}\n',
    ),
    "/text": (Response(200, b"{}", "text/plain"), b"{}"),
}


async def test_each_request_is_audited_once_whatever_its_end(
    start: Start, clock: Clock, rng: Stream
) -> None:
    lines: list[bytes] = []
    audit = RequestAudit(lines.append, Scheme(BUILT_IN), clock, rng)
    async with start(audit=audit) as harness:
        async with harness.wire() as wire:
            wire.ask("GET", "/a", b"", f"Authorization: Bearer {BEARER}")
            await wire.answer()
            wire.ask("GET", "/b", b"", "Authorization: Bearer wrong")
            await wire.answer()
            wire.ask(
                "POST", "/forbidden", b"", "Content-Length: 3", f"Authorization: Bearer {BEARER}"
            )
            await wire.answer()
        async with harness.wire() as wire:
            wire.ask("GET", "/slow")
            await harness.handler.entered.wait()
        async with clock.timeout(LIMIT_S):
            while len(lines) < 4:
                await clock.sleep(0.01)
    events = [json.loads(line) for line in lines]
    assert [(event["requestURI"], event["responseStatus"]["code"]) for event in events] == [
        ("/a", 200),
        ("/b", 401),
        ("/forbidden", 403),
        ("/slow", CLIENT_GONE),
    ]


async def test_json_bodies_end_with_one_newline(start: Start) -> None:
    """As in Kubernetes, so that a shell's prompt stands on its own line."""
    async with start() as harness, harness.wire() as wire:
        for path, (response, body) in JSON_BODIES.items():
            harness.handler.answers[path] = response
            wire.ask("GET", path)
            assert (await wire.answer()).body == body
        wire.ask("GET", "/absent", b"", "Authorization: Bearer wrong")
        assert (await wire.answer()).body.endswith(b"}\n")


AUTHORIZED = f"Authorization: Bearer {BEARER}"


def anonymous(method: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} / HTTP/1.1", "Host: x", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    "raw",
    [
        anonymous("POST", "Content-Length: 3000000"),
        anonymous("POST", "Content-Length: 3000000", "Expect: 100-continue"),
        anonymous("POST", "Transfer-Encoding: chunked") + b"5\r\nabcde\r\n",
        anonymous("GET", "Content-Length: 4") + b"abcd",
    ],
    ids=["length", "expect", "chunked", "here"],
)
async def test_body_without_a_credential_is_not_read(start: Start, raw: bytes) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.send(raw)
        answer = await wire.answer()
        assert (answer.code, answer.status["reason"]) == (401, "Unauthorized")
        if not raw.endswith(b"abcd"):
            assert await wire.ended()
        assert harness.handler.seen == []
        assert harness.listener.budget.held == 0


async def test_request_is_refused_on_its_head(start: Start) -> None:
    async with start() as harness, harness.wire() as wire:
        wire.ask("POST", "/forbidden", b"", "Content-Length: 3000000")
        answer = await wire.answer()
        assert (answer.code, answer.status["reason"]) == (403, "Forbidden")
        assert await wire.ended()
        assert harness.handler.seen == []


async def test_bodies_of_all_connections_share_one_bound(start: Start, clock: Clock) -> None:
    async with start(Limits(bodies_bytes=100_000)) as harness:
        budget = harness.listener.budget
        async with harness.wire() as first, harness.wire() as second, harness.wire() as third:
            first.ask("POST", "/", b"", "Content-Length: 90000")
            first.send(b"x" * 80_000)
            async with clock.timeout(LIMIT_S):
                while budget.held < 80_000:
                    await clock.sleep(0.01)
            second.ask("POST", "/", b"", "Content-Length: 30000")
            second.send(b"x" * 25_000)
            answer = await second.answer()
            assert (answer.code, answer.status["reason"]) == (429, "TooManyRequests")
            assert answer.headers["retry-after"] == "1"
            assert await second.ended()
            first.send(b"x" * 10_000)
            assert json.loads((await first.answer()).body) == {"got": 90_000}
            third.ask("POST", "/", b"", "Content-Length: 30000")
            third.send(b"x" * 15_000)
            third.send(b"x" * 15_000)
            assert (await third.answer()).code == 200
        assert budget.held == 0


async def test_compressed_body_is_inflated_within_its_bound(start: Start) -> None:
    """A megabyte may stand for a gigabyte: nothing of it is made for a caller without a credential."""
    zipped = "Content-Encoding: gzip"
    bomb = gzip.compress(b" " * 50_000_000)
    async with start() as harness:
        budget = harness.listener.budget
        async with harness.wire() as wire:
            wire.ask("PUT", "/", bomb, zipped)
            assert (await wire.answer()).code == 401
        assert budget.inflated == 0
        async with harness.wire() as wire:
            wire.ask("POST", "/", bomb, zipped, AUTHORIZED)
            assert (await wire.answer()).code == 413
        assert 0 < budget.inflated < 5_000_000
        for coding, body in (("br", b"x"), ("gzip", gzip.compress(b"x") + b"more")):
            async with harness.wire() as wire:
                wire.ask("POST", "/", body, f"Content-Encoding: {coding}", AUTHORIZED)
                assert (await wire.answer()).code in (400, 415)
        assert harness.handler.seen == []


async def test_body_that_cannot_be_decoded_is_a_bad_request(
    start: Start, records: list[tuple[str, dict[str, object]]]
) -> None:
    zipped = ("Content-Encoding: gzip", AUTHORIZED)
    async with start() as harness:
        for body in (b"not gzip at all", b"\x1f\x8b\x08\x00" + b"x" * 400, b"x" * 300_000):
            async with harness.wire() as wire:
                wire.ask("POST", "/", body, *zipped)
                assert (await wire.answer()).status["reason"] == "BadRequest"
        async with harness.wire() as wire:
            wire.ask("POST", "/", b"", "Transfer-Encoding: chunked", AUTHORIZED)
            wire.send(b"5\r\nabcde\r\nnonsense\r\n\r\n")
            assert (await wire.answer()).status["reason"] == "BadRequest"
        async with harness.wire() as wire:
            wire.ask("POST", "/", gzip.compress(b"x" * 1_000), *zipped)
            assert json.loads((await wire.answer()).body) == {"got": 1_000}
        async with harness.wire() as wire:
            wire.ask("POST", "/", gzip.compress(b"x" * 50_000_000), *zipped)
            assert (await wire.answer()).code == 413
        assert len(harness.handler.seen) == 1
    assert records == []


async def no_one_left(listener: Listener, clock: Clock) -> None:
    """Wait until the listener has no connection."""
    async with clock.timeout(LIMIT_S):
        while len(listener.connections):
            await clock.sleep(0.01)


async def test_client_that_does_not_read_is_not_served_on(start: Start, clock: Clock) -> None:
    """A thousand answers of 50 kB would be 50 MB in the server's memory."""
    async with start(Limits(stall_s=0.3)) as harness, harness.wire() as wire:
        # Nothing reads, so the stream's own buffer of 128 kB fills and the socket's after it.
        wire.send(b"GET /medium HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000)
        await harness.handler.entered.wait()
        await no_one_left(harness.listener, clock)
        assert len(harness.handler.seen) < 500


async def test_large_answer_is_cut_where_none_reads_it(start: Start, clock: Clock) -> None:
    async with start(Limits(stall_s=0.3)) as harness, harness.wire() as wire:
        wire.ask("GET", "/huge")
        await harness.handler.entered.wait()
        await no_one_left(harness.listener, clock)


async def test_oldest_stranger_makes_room_for_the_newest(start: Start) -> None:
    bounds = ConnectionLimits(total=4, unauthenticated=3, unauthenticated_per_peer=3)
    async with start(Limits(connections=bounds)) as harness, harness.wire() as known:
        known.ask("GET", "/", b"", AUTHORIZED)
        assert (await known.answer()).code == 200
        async with harness.wire() as first, harness.wire() as second, harness.wire() as third:
            for wire in (first, second, third):
                wire.ask("GET", "/")
                assert (await wire.answer()).code == 200
            async with harness.wire() as fourth:
                assert await first.ended()
                fourth.ask("GET", "/", b"", AUTHORIZED)
                assert (await fourth.answer()).code == 200
            known.ask("GET", "/", b"", AUTHORIZED)
            assert (await known.answer()).code == 200
        assert harness.listener.connections.evicted >= 1


async def test_handshakes_count_as_connections(start: Start, tmp_path: Path, clock: Clock) -> None:
    keys = certificates.ensure(tmp_path, names=("127.0.0.1",), now=clock.now())
    client = ssl.create_default_context(cadata=keys.ca_pem.decode())
    bounds = ConnectionLimits(total=10, unauthenticated=3, unauthenticated_per_peer=3)
    async with start(Limits(connections=bounds), tls=keys.server_context()) as harness:
        async with harness.wire() as silent, harness.wire() as garbage:
            garbage.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await garbage.ended()
            async with harness.wire(), harness.wire(), harness.wire(client) as speaking:
                assert await silent.ended()
                speaking.ask("GET", "/", b"", AUTHORIZED)
                assert (await speaking.answer()).code == 200
        await no_one_left(harness.listener, clock)


async def test_failures_of_strangers_are_logged_so_often(
    start: Start, records: list[tuple[str, dict[str, object]]]
) -> None:
    async with start() as harness:
        for _ in range(200):
            async with harness.wire() as wire:
                wire.ask("GET", "/fault")
                assert (await wire.answer()).code == 500
    assert len(records) == 60


async def test_large_answers_are_compressed_for_who_takes_it(start: Start) -> None:
    body = b'{"items":[' + b",".join(b'{"n":%d}' % number for number in range(40_000)) + b"]}"

    async def unchunked(wire: Wire) -> bytes:
        out = b""
        while chunk := await wire.chunk():
            out += chunk
        return out

    async with start() as harness, harness.wire() as wire:
        harness.handler.answers["/list"] = Response(200, body)
        harness.handler.answers["/small"] = Response(200, b'{"a":1}')
        wire.ask("GET", "/list", b"", "Accept-Encoding: br, gzip;q=0.5")
        head = await wire.head()
        assert head.headers["content-encoding"] == "gzip"
        assert head.headers["vary"] == "Accept-Encoding"
        packed = await unchunked(wire)
        assert gzip.decompress(packed) == body + b"\n"
        assert len(packed) < len(body) / 3
        for path, accepted in (("/list", "identity"), ("/list", "gzip;q=0"), ("/small", "gzip")):
            wire.ask("GET", path, b"", f"Accept-Encoding: {accepted}")
            answer = await wire.answer()
            assert "content-encoding" not in answer.headers
            assert answer.body == harness.handler.answers[path].body + b"\n"


async def test_bytes_that_are_no_text_are_no_failure(start: Start) -> None:
    async with start() as harness:
        async with harness.wire() as wire:
            wire.send(b"GET /a\xff?x=\xfe HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await wire.answer()).status["reason"] == "BadRequest"
        async with harness.wire() as wire:
            wire.send(b"GET /a%FF?x=%FE HTTP/1.1\r\nHost: x\r\nAccept: \xff\r\n\r\n")
            assert (await wire.answer()).code == 200
        (seen,) = harness.handler.seen
        assert (seen.path, dict(seen.query)) == ("/a\ufffd", {"x": "\ufffd"})
