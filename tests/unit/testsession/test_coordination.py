"""Barriers and topics: repeated calls, limits, and a restart that keeps them."""

import pytest
from hypothesis import given, strategies as st

from grange.controllers.testsession import coordination
from grange.controllers.testsession.coordination import (
    Coordination,
    CoordinationError,
    JournalEntry,
)


def arrive(state: Coordination, name: str, component: str, count: int) -> JournalEntry | None:
    """A call as the service makes it: checked, written down, applied."""
    return _applied(state, state.arrival(name, component, count))


def publish(
    state: Coordination, topic: str, component: str, text: str, ident: str = ""
) -> JournalEntry | None:
    """The same for a topic."""
    return _applied(state, state.publication(topic, component, text, ident))


def _applied(state: Coordination, entry: JournalEntry | None) -> JournalEntry | None:
    if entry is not None:
        state.apply(entry)
    return entry


def test_barrier_opens_when_all_are_there() -> None:
    state = Coordination()
    assert arrive(state, "warm", "driver", 2) is not None
    assert not state.barrier("warm").is_open
    assert arrive(state, "warm", "driver", 2) is None  # it lost the answer
    assert state.barrier("warm").arrived == 1
    arrive(state, "warm", "server", 2)
    assert state.barrier("warm").is_open
    assert arrive(state, "warm", "server", 2) is None
    with pytest.raises(CoordinationError, match="barrier 'warm' is open: 2 components"):
        arrive(state, "warm", "late", 2)


def test_barrier_of_two_counts_is_refused() -> None:
    state = Coordination()
    arrive(state, "warm", "driver", 2)
    with pytest.raises(CoordinationError, match="waits for 2 components, not 3"):
        arrive(state, "warm", "server", 3)


def test_topic_keeps_its_order_and_repeated_entries_once() -> None:
    state = Coordination()
    for text in ("a", "b"):
        publish(state, "news", "driver", text, text)
    assert publish(state, "news", "driver", "a", "a") is None
    assert state.offset("news", "driver", "a") == 0
    assert publish(state, "news", "server", "a", "a") is not None
    publish(state, "news", "driver", "c")
    assert state.read("news", 0) == ["a", "b", "a", "c"]
    assert state.read("news", 3) == ["c"]
    assert state.read("news", 9) == state.read("other", 0) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 64, "a b", "ä", "a\n"])
def test_malformed_names_are_refused(name: str) -> None:
    state = Coordination()
    for call in (
        lambda: arrive(state, name, "driver", 1),
        lambda: arrive(state, "warm", name, 1),
        lambda: publish(state, name, "driver", "x"),
        lambda: publish(state, "news", name, "x"),
        lambda: state.read(name, 0),
    ):
        with pytest.raises(CoordinationError, match="is no name"):
            call()


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_absurd_counts_are_refused(count: int) -> None:
    with pytest.raises(CoordinationError, match="out of range"):
        arrive(Coordination(), "warm", "driver", count)


def test_numbers_and_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "_MOST_NAMES", 2)
    monkeypatch.setattr(coordination, "_MOST_ENTRIES", 3)
    monkeypatch.setattr(coordination, "_MOST_BYTES", 100)
    state = Coordination()
    with pytest.raises(CoordinationError, match="bytes exceed 65536"):
        publish(state, "news", "driver", "x" * 65_537)
    with pytest.raises(CoordinationError, match="bytes of all topics"):
        publish(state, "news", "driver", "x" * 100)
    with pytest.raises(CoordinationError, match="id: it has more than 128"):
        publish(state, "news", "driver", "x", "x" * 129)
    for _ in range(3):
        publish(state, "a", "driver", "x")
    with pytest.raises(CoordinationError, match="there are 3 entries of topic 'a'"):
        publish(state, "a", "driver", "x")
    publish(state, "b", "driver", "x")
    with pytest.raises(CoordinationError, match="there are 2 topics, the limit is 2"):
        publish(state, "c", "driver", "x")
    for name in ("a", "b"):
        arrive(state, name, "driver", 1)
    with pytest.raises(CoordinationError, match="there are 2 barriers"):
        arrive(state, "c", "driver", 1)


CALLS = st.tuples(
    st.sampled_from(["arrive", "publish"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["driver", "server", "client"]),
    st.integers(1, 3),
    st.sampled_from(["", "1", "2"]),
)


@given(st.lists(CALLS, max_size=30))
def test_journal_gives_the_same_state(calls: list[tuple[str, str, str, int, str]]) -> None:
    state = Coordination()
    journal: list[JournalEntry] = []
    for what, name, component, count, ident in calls:
        try:
            entry = (
                arrive(state, name, component, count)
                if what == "arrive"
                else publish(state, name, component, f"{component}{count}", ident)
            )
        except CoordinationError:
            continue
        if entry is not None:
            journal.append(entry)
    again = Coordination(journal)
    for name in ("a", "b"):
        assert again.read(name, 0) == state.read(name, 0)
    for entry in journal:
        if entry.barrier:
            assert again.barrier(entry.barrier) == state.barrier(entry.barrier)
        elif entry.id:
            assert again.publication(entry.topic, entry.component, entry.text, entry.id) is None


def test_check_alone_changes_nothing() -> None:
    """What is not in the journal yet opens no barrier and is not read."""
    state = Coordination()
    for _ in range(2):
        assert state.arrival("warm", "driver", 1) is not None
        assert state.publication("news", "driver", "a", "1") is not None
    assert state.read("news", 0) == []


def test_entry_in_the_journal_twice_counts_once() -> None:
    """The one that called was cancelled while its entry was written, and called again."""
    entries = [
        JournalEntry(topic="news", component="driver", text="a", id="1"),
        JournalEntry(barrier="warm", component="driver", count=2),
    ]
    state = Coordination([*entries, *entries])
    assert state.read("news", 0) == ["a"]
    assert state.barrier("warm").arrived == 1
