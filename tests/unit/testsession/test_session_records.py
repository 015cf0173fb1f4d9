"""The store of sessions and events (S1-S6), and how events are written (T1)."""

from datetime import UTC, datetime

import pytest

from grange.api.kinds.testsession import SessionComponent, TestSession, TestSessionSpec, components
from grange.api.meta import ObjectMeta
from grange.controllers.testsession.library.library_errors import (
    SessionExistsError,
    SessionUnknownError,
)
from grange.controllers.testsession.library.session_records import (
    MemorySessionStore,
    RecordedEvent,
    SessionEventKind,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def session(name: str) -> TestSession:
    return TestSession(metadata=ObjectMeta(name=name))


def record(name: str, kind: SessionEventKind, description: str = "") -> RecordedEvent:
    return RecordedEvent(name, kind, NOW, description, {"driver": b"out", "server": b"err"})


def test_t1_event_kinds_are_written_by_name() -> None:
    numbers = {kind.name: kind.value for kind in SessionEventKind}
    assert numbers == {
        "INTERNAL_ERROR": 0,
        "QUEUE": 1,
        "ACCEPT": 2,
        "PROVISION": 3,
        "RUN": 4,
        "DONE": 5,
        "ERROR": 6,
        "CANCELLED": 7,
        "RETRY": 8,
    }
    for kind in SessionEventKind:
        event = record("a", kind, "100%s of %d").to_event()
        assert (event.type, event.message) == (kind.name, "100%s of %d")
        assert RecordedEvent.from_event("a", event) == RecordedEvent("a", kind, NOW, "100%s of %d")


def test_t1_unknown_event_is_refused() -> None:
    event = record("a", SessionEventKind.RUN).to_event()
    with pytest.raises(KeyError):
        RecordedEvent.from_event("a", type(event)(type="PAUSE", time=event.time))


def test_t2_workers_are_found_by_their_role() -> None:
    part = SessionComponent(image="i")
    spec = TestSessionSpec(
        driver=part, servers=(part, part), clients=(part,), roles={"db": (part,)}
    )
    found = [(role, name) for role, name, _ in components(spec)]
    assert found == [
        *(("server", "server-0"), ("server", "server-1"), ("client", "client")),
        *(("db", "db"), ("driver", "driver")),
    ]


def test_terminal_kinds_do_not_have_internal_error() -> None:
    terminal = [kind.name for kind in SessionEventKind if kind.is_terminal]
    assert terminal == ["DONE", "ERROR", "CANCELLED"]


def test_record_has_the_logs_of_the_driver() -> None:
    assert record("a", SessionEventKind.DONE).driver_logs == b"out"
    assert RecordedEvent("a", SessionEventKind.DONE, NOW).driver_logs == b""


def test_s1_duplicate_session_is_refused() -> None:
    store = MemorySessionStore()
    store.store_session(session("a"))
    with pytest.raises(SessionExistsError, match="a cannot be stored: the name is taken"):
        store.store_session(session("a"))


def test_s2_event_of_an_unknown_session_is_refused() -> None:
    store = MemorySessionStore()
    store.store_session(session("a"))
    store.delete_session("a")
    store.delete_session("a")
    with pytest.raises(SessionUnknownError, match="a is not in the store"):
        store.store_event(record("a", SessionEventKind.RUN))


def test_s3_latest_event_is_the_last_one() -> None:
    store = MemorySessionStore()
    store.store_session(session("a"))
    store.store_session(session("b"))
    first, second = (record("a", k) for k in (SessionEventKind.QUEUE, SessionEventKind.ACCEPT))
    store.store_event(first)
    store.store_event(second)
    assert store.latest_event("a") is second
    assert store.events("a") == (first, second)
    assert store.events("b") == ()


def test_s4_session_without_events_has_no_latest() -> None:
    store = MemorySessionStore()
    store.store_session(session("a"))
    assert store.latest_event("a") is None


def test_s5_latest_event_of_an_unknown_session() -> None:
    with pytest.raises(SessionUnknownError):
        MemorySessionStore().latest_event("a")


def test_s6_unknown_session_is_none() -> None:
    store = MemorySessionStore()
    store.store_session(session("a"))
    assert store.get_session("a") == session("a")
    assert store.get_session("b") is None
