"""The session service over real sockets: its client, hostile input, tokens, TLS and a restart."""

import asyncio
import functools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yarl
from tests.e2e.planes import LIMIT_S
from tests.support.log_api import LogApi

from grange.api.http import ADMIN, Request, Response
from grange.api.kinds.testsession import TestSession
from grange.app import pki
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.controllers.testsession.session_server import ServerTools, SessionServer
from grange.evidence import session_client
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceLimits
from grange.evidence.evidence_paths import EvidenceKey
from grange.evidence.metric_series import MetricPoint, MetricSeries
from grange.evidence.session_client import SessionClient, SessionClientError
from grange.evidence.session_record import SessionRecord

pytestmark = pytest.mark.e2e

UID = "0b1c-22"
READER = "reader-token"


class ServerWorld:
    """A service with one session."""

    def __init__(self, root: Path, clock: Clock, log: Logger, offload: Threads, **tls: Any) -> None:
        self.requests: list[str] = []
        self.document: dict[str, Any] = {
            "metadata": {"namespace": "ci", "name": "bench", "uid": UID},
            "spec": {"driver": {}, "evidence": {"maxArtifactBytes": 1_000_000}},
            "status": {"attempt": 0},
        }
        api = LogApi(sessions={"bench": self.document})

        async def handle(request: Request) -> Response:
            self.requests.append(request.path.rpartition("/")[2])
            return await api.handle(request)

        self.directory = EvidenceDirectory(root / "evidence", EvidenceLimits(free_bytes=0))
        self.series = MetricSeries(root / "series.db")
        tools = ServerTools(
            client=Client(InProcess(handle, ADMIN), clock=clock),
            directory=self.directory,
            series=self.series,
            clock=clock,
            log=log,
            offload=offload,
            key=b"key",
            reader_token=READER,
        )
        self.server = SessionServer(tools, **tls)

    @property
    def environment(self) -> dict[str, str]:
        session = msgspec.convert(self.document, TestSession)
        return dict(self.server.environment(session))

    @property
    def base(self) -> str:
        return self.environment["GRANGE_SESSION_URL"]

    def client(self, component: str) -> SessionClient:
        found = self.environment
        return SessionClient(
            *(found["GRANGE_SESSION_URL"], found["GRANGE_SESSION_TOKEN"]),
            *(found.get("GRANGE_SESSION_CA", ""), component),
            patience_s=LIMIT_S,
        )

    async def request(
        self, method: str, url: str, token: str | None = None, **more: Any
    ) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {token or self.server.token(UID)}"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, **more) as response,
        ):
            return response.status, await response.read()


@asynccontextmanager
async def serving(
    root: Path, clock: Clock, log: Logger, port: int = 0, **tls: Any
) -> AsyncGenerator[ServerWorld, None]:
    offload = Threads("evidence")
    world = ServerWorld(root, clock, log, offload, **tls)
    await world.server.start("127.0.0.1", port)
    try:
        yield world
    finally:
        await world.server.close()
        offload.close()


async def in_threads(*calls: Any) -> list[Any]:
    """Blocking calls side by side; their results or errors, in order."""
    pool = Threads("clients", workers=8)
    try:
        return await asyncio.gather(*(pool.run(call) for call in calls), return_exceptions=True)
    finally:
        pool.close()


async def test_components_meet_at_a_barrier(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with serving(tmp_path, clock, log) as world:
        names = ("driver", "server", "client-0", "client-1")
        calls = [functools.partial(world.client(name).barrier, "warm", 4) for name in names]
        assert await in_threads(*calls) == [None] * 4
        late = await in_threads(functools.partial(world.client("late").barrier, "warm", 4))
        assert "barrier 'warm' is open" in str(late[0])
        alone = await in_threads(functools.partial(world.client("driver").barrier, "alone", 2, 0.1))
        assert "barrier alone: 1 of 2 components arrived in 0.1 s" in str(alone[0])


async def test_entries_reach_subscribers_in_order(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:

        def read() -> list[str]:
            found = world.client("server").subscribe("news")
            return [next(found) for _ in range(3)]

        def write() -> list[int]:
            client = world.client("driver")
            return [client.publish("news", text) for text in ("a", "ü 100 %", "c")]

        assert await in_threads(read, write) == [["a", "ü 100 %", "c"], [0, 1, 2]]


async def test_artifact_is_uploaded_and_read_back(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        report = tmp_path / "report.json"
        report.write_bytes(b"x" * 600_000)
        put = world.client("driver").put
        assert await in_threads(lambda: put(report)) == [None]
        [refused] = await in_threads(lambda: put(report, "deep/ä b.json"))
        assert "413" in str(refused)  # both are more than the limit of a component
        status, body = await world.request("GET", f"{world.server.url}/v1/sessions/{UID}/evidence")
        paths = [file["path"] for file in json.loads(body)["files"]]
        assert status == 200
        assert "artifacts/0/driver/report.json" in paths
        url = f"{world.server.url}/v1/sessions/{UID}/evidence/artifacts/0/driver/report.json"
        assert await world.request("GET", url, READER) == (200, b"x" * 600_000)


async def test_large_artifact_is_refused_before_it_is_sent(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        core = tmp_path / "core"
        with core.open("wb") as file:
            file.truncate(10 * 1024**3)  # takes no space
        (error,) = await in_threads(lambda: world.client("driver").put(core))
        assert isinstance(error, SessionClientError)
        assert "is not kept: it has 10737418240 bytes, but 1000000 of the" in str(error)
        endless = (b"x" * 100_000 for _ in range(100))
        status, body = await world.request(
            "PUT", f"{world.base}/artifacts/driver/big", data=_aiter(endless)
        )
        assert (status, b"is not kept: it has more than" in body) == (413, True)
        kept = [file for file in (tmp_path / "evidence").rglob("*") if file.is_file()]
        assert sum(file.stat().st_size for file in kept) < 10_000


async def _aiter(chunks: Any) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "artifacts/driver/..%2F..%2Fescape", 400),
        ("PUT", "artifacts/driver/%2Fetc%2Fpasswd", 400),
        ("PUT", "artifacts/driver/a%00b", 400),
        ("PUT", "artifacts/..%2Fx/a", 400),
        ("PUT", f"artifacts/driver/{'x' * 300}", 400),
        ("PUT", "artifacts/another/a", 400),
        ("PUT", "../1/artifacts/driver/a", 404),
        ("POST", "../1/topics/a?component=driver", 404),
        ("POST", "../999999/barriers/a?count=1&component=driver", 404),
        ("POST", "barriers/a%2Fb?count=1&component=c", 400),
        ("POST", "barriers/a?count=-1&component=c", 400),
        ("POST", "barriers/a?count=9999999999999999&component=c", 400),
        ("POST", "barriers/a?count=2", 400),
        ("POST", "topics/a?component=", 400),
        ("GET", "topics/a?offset=x", 400),
        ("GET", "topics/a?offset=0&timeout=0", 200),
        ("DELETE", "topics/a", 405),
        ("GET", "nothing", 404),
    ],
)
async def test_hostile_requests_are_refused(
    tmp_path: Path, clock: Clock, log: Logger, method: str, path: str, status: int
) -> None:
    async with serving(tmp_path, clock, log) as world:
        found, body = await world.request(method, yarl.URL(f"{world.base}/{path}", encoded=True))  # type: ignore[arg-type]  # as it is
        assert found == status, body
        assert not (tmp_path / "escape").exists()


async def test_body_of_an_entry_is_bounded(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with serving(tmp_path, clock, log) as world:
        url = f"{world.base}/topics/a?component=driver"
        for size, status in ((70_000, 400), (500_000, 413)):
            assert (await world.request("POST", url, data=b"x" * size))[0] == status
        assert (await world.request("POST", url, data=b"\xff"))[0] == 400


async def test_tokens_admit_to_one_session_only(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with serving(tmp_path, clock, log) as world:
        log_of_main = world.directory.open_log(EvidenceKey("ci", "bench", UID), 0, "p", "main")
        log_of_main.feed(b"2026-01-01T00:00:00Z hello\n")
        url = f"{world.server.url}/v1/sessions"
        other = world.server.token("other")
        assert (await world.request("GET", f"{url}/{UID}/evidence", other))[0] == 401
        assert (await world.request("GET", f"{url}/{UID}/evidence", READER))[0] == 200
        assert (await world.request("GET", f"{url}/unknown/evidence", READER))[0] == 404
        assert (await world.request("GET", f"{url}/..%2F/evidence", READER))[0] == 400
        for path in (f"{url}/{UID}/0/topics/a", f"{url}/other/0/topics/a"):
            assert (await world.request("GET", path, READER))[0] == 401
        gone = f"{url}/other/0/topics/a"
        assert (await world.request("GET", gone, other))[0] == 404


async def test_readers_are_sent_to_the_member_that_has_it(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """A member that collected an attempt before another took over has a part only."""
    async with (
        serving(tmp_path / "one", clock, log) as one,
        serving(tmp_path / "two", clock, log) as two,
    ):
        theirs = f"{two.server.url}/v1/sessions/{UID}/evidence"
        mine = f"{one.server.url}/v1/sessions/{UID}/evidence"
        key = EvidenceKey("ci", "bench", UID)
        for world, attempt in ((one, 0), (two, 1)):
            world.document["status"] = {"attempt": 1, "evidence": {"url": theirs}}
            log_file = world.directory.path(key) / "logs" / str(attempt) / "a b.log"
            log_file.parent.mkdir(parents=True)
            log_file.write_text(world.server.url)
            record = SessionRecord(
                uid=UID, attempts=2, collected_attempts=attempt + 1, evidence_url=world.server.url
            )
            world.directory.write_record(key, record)
        two.document["status"]["evidence"]["url"] = "https://an.earlier.address:1"
        path = "/logs/1/a%20b.log"
        status, found = await one.request("GET", mine + path, READER, allow_redirects=False)
        assert (status, found.decode()) == (307, f"the evidence is at {theirs}{path}\n")
        status, found = await two.request("GET", theirs + path, READER)
        assert (status, found.decode()) == (200, two.server.url)
        status, _ = await one.request("GET", mine, "someone", allow_redirects=False)
        assert status == 401
        one.document["status"]["evidence"] = {}
        status, found = await one.request("GET", f"{mine}/logs/0/a%20b.log", READER)
        assert (status, found.decode()) == (200, one.server.url)


async def test_evidence_is_found_here_after_a_new_address(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """The last attempt got no machines and left no log; since then the service has moved."""
    earlier = f"http://127.0.0.1:1/v1/sessions/{UID}/evidence"
    async with serving(tmp_path, clock, log) as world:
        record = SessionRecord(uid=UID, attempts=2, collected_attempts=1, evidence_url=earlier)
        world.directory.write_record(EvidenceKey("ci", "bench", UID), record)
        world.document["status"] = {"attempt": 1, "evidence": {"url": earlier}}
        url = f"{world.server.url}/v1/sessions/{UID}/evidence"
        status, body = await world.request("GET", url, READER, allow_redirects=False)
        assert (status, json.loads(body)["files"][0]["path"]) == (200, "session.json")


async def test_evidence_of_a_member_that_is_gone_is_named(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        async with serving(tmp_path / "gone", clock, log) as other:
            theirs = f"{other.server.url}/v1/sessions/{UID}/evidence"
            world.document["status"] = {"evidence": {"url": theirs}}
            url = f"{world.server.url}/v1/sessions/{UID}/evidence"
            assert (await world.request("GET", url, READER, allow_redirects=False))[0] == 307
        status, body = await world.request("GET", url, READER, allow_redirects=False)
        assert status == 404
        address = theirs.split("/")[2]
        assert f"collected by the service at {address}, which does not answer: " in body.decode()


async def test_reads_of_a_running_session_list_sessions_once(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        world.directory.open_log(EvidenceKey("ci", "bench", UID), 0, "p", "main")
        url = f"{world.server.url}/v1/sessions"
        for _ in range(3):
            assert (await world.request("GET", f"{url}/{UID}/evidence", READER))[0] == 200
        assert world.requests == ["testsessions", "bench", "bench"]
        world.requests.clear()
        for _ in range(3):
            assert (await world.request("GET", f"{url}/unknown/evidence", READER))[0] == 404
        assert world.requests == ["testsessions"]


async def test_series_are_read_with_the_token_of_readers(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        world.series.append(
            [MetricPoint("ci", "bench", "p99", UID, "2026-01-01T00:00:00.000000Z", 2.5)]
        )
        url = f"{world.server.url}/v1/series/ci/bench/p99"
        assert (await world.request("GET", url))[0] == 401
        status, body = await world.request("GET", url, READER)
        assert (status, json.loads(body)["points"][0]["value"]) == (200, 2.5)
        status, body = await world.request("GET", f"{url}?verdict=Passed", READER)
        assert (status, json.loads(body)) == (200, {"points": []})


async def test_restart_keeps_barriers_and_topics(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with serving(tmp_path, clock, log) as world:
        port = int(world.server.url.rpartition(":")[2])
        await in_threads(lambda: world.client("driver").publish("news", "before"))
        client = world.client("server")
        first = functools.partial(world.client("driver").barrier, "warm", 2, 0.1)
        await in_threads(first)
    async with serving(tmp_path, clock, log, port) as world:
        assert await in_threads(lambda: client.barrier("warm", 2)) == [None]
        assert await in_threads(lambda: next(client.subscribe("news"))) == ["before"]


async def test_torn_end_of_the_journal_costs_no_later_entry(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        await in_threads(lambda: world.client("driver").publish("news", "before"))
        (journal,) = (tmp_path / "evidence").rglob("*.jsonl")
    with journal.open("ab") as torn:
        torn.write(b'{"topic":"ne')  # the process ended here
    for text in ("after", "last"):
        async with serving(tmp_path, clock, log) as world:
            offsets = await in_threads(
                functools.partial(world.client("driver").publish, "news", text)
            )
            assert offsets == [1 + (text == "last")]


async def test_change_that_cannot_be_kept_is_no_change(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        publish = functools.partial(world.client("driver").publish, "news")
        assert await in_threads(functools.partial(publish, "first")) == [0]
        (journal,) = (tmp_path / "evidence").rglob("*.jsonl")
        kept = journal.rename(journal.with_suffix(".away"))
        journal.mkdir()
        url = f"{world.base}/topics/news?component=driver&id=1"
        status, body = await world.request("POST", url, data=b"second")
        assert (status, b"the change cannot be kept: Is a directory; check" in body) == (503, True)
        journal.rmdir()
        kept.rename(journal)
        status, body = await world.request("POST", url, data=b"second")
        assert (status, json.loads(body)) == (200, {"offset": 1})
    async with serving(tmp_path, clock, log) as world:
        found = world.client("driver").subscribe("news")
        assert await in_threads(lambda: [next(found), next(found)]) == [["first", "second"]]


async def test_later_attempt_is_admitted_when_it_begins(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with serving(tmp_path, clock, log) as world:
        url = f"{world.base.rpartition('/')[0]}/1/topics/a?timeout=0"
        assert (await world.request("GET", url))[0] == 404
        world.document["status"] = {"attempt": 1}
        assert (await world.request("GET", url))[0] == 200


async def test_program_is_used_from_the_environment(
    tmp_path: Path, clock: Clock, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, clock, log) as world:
        for name, value in {**world.environment, "GRANGE_SESSION_COMPONENT": "driver"}.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "a.txt").write_text("a")
        words = (
            *(["barrier", "warm", "1"], ["publish", "news", "hello"]),
            *(["subscribe", "news", "--count", "1"], ["put", str(tmp_path / "a.txt")]),
            ["put", str(tmp_path / "absent")],
        )
        codes = [(await in_threads(lambda w=w: session_client.main(w)))[0] for w in words]
        assert codes == [0, 0, 0, 0, 1]


async def test_components_check_the_certificate(tmp_path: Path, clock: Clock, log: Logger) -> None:
    keys = await pki.in_process(tmp_path / "pki", pki.LOCAL_NAMES, clock.now())
    tls: dict[str, Any] = {"ca_pem": keys.ca_pem.decode(), "context": keys.server_context()}
    async with serving(tmp_path, clock, log, **tls) as world:
        assert world.server.url.startswith("https://127.0.0.1:")
        assert await in_threads(lambda: world.client("driver").publish("news", "a")) == [0]
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(world.base)
