"""Log lines: what comes out is what went in, from where it was asked for."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.agent.builders import NOW, UID, document

from grange.agent import container_logs
from grange.agent.container_logs import AgentLogs, Renderer
from grange.agent.container_runtime import ContainerID, LogQuery, PodSetup, Program
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.api.meta import Document
from grange.api.status import BadRequest, NotFound
from grange.base.clock import Clock


def stored(
    text: str, seconds: float = 0, *, partial: bool = False, stream: str = "stdout"
) -> bytes:
    tag = "P" if partial else "F"
    return (
        container_logs.stamp(NOW + timedelta(seconds=seconds)) + f" {stream} {tag} {text}".encode()
    )


def rendered(lines: list[bytes], **query: object) -> str:
    return Renderer(LogQuery(**query)).render(lines).decode()  # type: ignore[arg-type]  # as named


def test_parts_of_a_line_come_back_as_one() -> None:
    lines = [stored("one, ", partial=True), stored("two"), stored("three")]
    assert rendered(lines) == "one, two\nthree\n"
    assert rendered(lines, timestamps=True).count("2026-01-01T12:00:00.000000000Z") == 2


def test_damaged_lines_are_left_out() -> None:
    assert container_logs.parse(b"nonsense") is None
    assert rendered([b"", b"half a li", stored("good")]) == "good\n"


def test_since_and_limit() -> None:
    lines = [stored("old"), stored("new", 10)]
    assert rendered(lines, since=NOW + timedelta(seconds=5)) == "new\n"
    assert rendered(lines, limit_bytes=6) == "old\nne"
    renderer = Renderer(LogQuery(limit_bytes=6))
    renderer.render(lines)
    assert renderer.full


def test_times_of_another_zone_are_the_same_instant() -> None:
    assert (
        container_logs.stamp(datetime(2026, 1, 1, 12, tzinfo=UTC))
        == b"2026-01-01T12:00:00.000000000Z"
    )


@given(
    st.lists(st.tuples(st.text("ab", max_size=3), st.integers(0, 3)), max_size=8),
    st.integers(0, 10),
)
@settings(max_examples=200, deadline=None)
def test_a_tail_is_the_end_of_the_whole(whole: list[tuple[str, int]], count: int) -> None:
    """Lines in any number of parts count once."""
    raw: list[bytes] = []
    texts = []
    for text, parts in whole:
        raw += [stored("-", partial=True)] * parts + [stored(text)]
        texts.append("-" * parts + text + "\n")
    kept, missing = container_logs.tail(raw, count)
    assert rendered(kept) == "".join(texts[len(texts) - count :] if count < len(texts) else texts)
    assert missing == (max(0, count - len(texts)) if count else 0)


def test_an_unfinished_last_line_counts_as_one() -> None:
    raw = [stored("a"), stored("b"), stored("prompt", partial=True)]
    assert rendered(container_logs.tail(raw, 2)[0]) == "b\nprompt"


@dataclass(frozen=True)
class Options:
    container: str = ""
    follow: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    tail_lines: int | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


def pod_document(**status: object) -> Document:
    made = document(meta={"uid": UID})
    made["status"] = status
    return made


async def read(source: AgentLogs, pod: Document, options: Options) -> str:
    return b"".join([piece async for piece in source.read(pod, options)]).decode()


async def two_attempts(clock: Clock) -> FakeRuntime:
    output = ((0.0, "first"), (5.0, "second"))
    runtime = FakeRuntime(FakeMachine({"talk": Script(duration_s=10.0, output=output)}), clock)
    await runtime.prepare(PodSetup(UID, "default", "web", "node-1"))
    for attempt in range(2):
        await runtime.start(ContainerID(UID, "main", attempt), Program(("talk",), {}), ())
        await clock.sleep(11 if attempt == 0 else 6)
    return runtime


async def test_newest_attempt_is_read_unless_previous_is_asked(clock: Clock) -> None:
    source = AgentLogs(await two_attempts(clock), clock)
    assert await read(source, pod_document(), Options()) == "first\nsecond\n"
    stamped = await read(source, pod_document(), Options(previous=True, timestamps=True))
    assert stamped.startswith("2026-01-01T00:00:00.000000000Z first\n")
    assert await read(source, pod_document(), Options(since_seconds=3)) == "second\n"
    assert await read(source, pod_document(), Options(since_seconds=2**63 - 1)) == "first\nsecond\n"
    late = Options(since_time="2026-01-01T00:00:12Z")
    assert await read(source, pod_document(), late) == "second\n"
    assert await read(source, pod_document(), Options(follow=True)) == "first\nsecond\n"


async def test_a_log_opens_with_an_empty_piece(clock: Clock) -> None:
    """So that a silent log can be distinguished from one that cannot be read."""
    pieces = AgentLogs(await two_attempts(clock), clock).read(pod_document(), Options())
    assert await anext(pieces) == b""
    await pieces.aclose()


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (Options(container="other"), {}, "container other is not valid for pod web"),
        (Options(), {}, "not yet created"),
        (
            Options(),
            {
                "containerStatuses": [
                    {"name": "main", "state": {"waiting": {"reason": "R", "message": "m"}}}
                ]
            },
            "waiting to start: R: m",
        ),
    ],
)
async def test_what_cannot_be_read_is_explained(
    clock: Clock, options: Options, status: Document, expected: str
) -> None:
    source = AgentLogs(FakeRuntime(FakeMachine(), clock), clock)
    with pytest.raises(BadRequest, match=expected):
        await read(source, pod_document(**status), options)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_log_of_a_finished_pod_that_was_removed_is_gone(clock: Clock, phase: str) -> None:
    """As after its machine was wiped for the next pod."""
    source = AgentLogs(FakeRuntime(FakeMachine(), clock), clock)
    with pytest.raises(NotFound, match=r'^logs of pod "web" are gone: node .* has removed .*; '):
        await read(source, pod_document(phase=phase), Options())


async def test_a_pod_that_was_never_restarted_has_no_previous_log(clock: Clock) -> None:
    runtime = FakeRuntime(FakeMachine({"talk": Script(duration_s=1.0)}), clock)
    await runtime.prepare(PodSetup(UID, "default", "web", "node-1"))
    await runtime.start(ContainerID(UID, "main", 0), Program(("talk",), {}), ())
    await clock.sleep(2)
    with pytest.raises(BadRequest, match="has not been restarted"):
        await read(AgentLogs(runtime, clock), pod_document(), Options(previous=True))


def test_which_container_must_be_stated_when_there_are_several() -> None:
    pod = document({"name": "a"}, {"name": "b"}, initContainers=[{"name": "i"}])
    with pytest.raises(BadRequest, match=r"choose one of: \[a b\] or one of the init .*\[i\]"):
        container_logs.container_of(pod, "")
    assert container_logs.container_of(pod, "i") == "i"
