"""The two layers of state: accepted on top of acknowledged, and an exact rollback."""

import pytest

from grange.store.errors import RevisionMismatch
from grange.store.interface import Entry
from grange.store.store_state import StoreState


def entry(key: str, revision: int) -> Entry:
    return Entry(key, b"old", revision, revision)


def state_of(*keys: str) -> StoreState:
    entries = {key: entry(key, number) for number, key in enumerate(keys, 1)}
    return StoreState(entries, len(keys))


def body(revision: int) -> bytes:
    return b"new@%d" % revision


def test_accepted_change_shows_only_in_latest() -> None:
    state = state_of("/a")
    change = state.put("/a", body, None)
    assert state.get("/a") == entry("/a", 1)
    assert state.latest("/a") == Entry("/a", b"new@2", 2, 1)
    assert state.page("", "", 0).entries == [entry("/a", 1)]
    assert state.revision == 1
    state.acknowledge(change)
    assert state.get("/a") == state.latest("/a") == change.entry
    assert state.revision == 2


def test_changes_are_decided_on_top_of_each_other() -> None:
    state = state_of()
    created = state.put("/a", body, 0)
    with pytest.raises(RevisionMismatch):
        state.put("/a", body, 0)
    deleted = state.delete("/a", None, created.entry.revision)
    assert state.latest("/a") is None
    with pytest.raises(RevisionMismatch):
        state.delete("/a", None, None)
    again = state.put("/a", body, 0)
    assert (again.before, again.entry.created) == (None, 3)
    for change in (created, deleted, again):
        state.acknowledge(change)
    assert state.get("/a") == state.latest("/a") == again.entry
    assert len(state) == 1


def test_acknowledging_the_first_of_two_keeps_the_second_pending() -> None:
    state = state_of("/a")
    first, second = state.put("/a", body, None), state.put("/a", body, None)
    state.acknowledge(first)
    assert (state.get("/a"), state.latest("/a")) == (first.entry, second.entry)


def test_rollback_is_exact_and_gives_no_revision_twice() -> None:
    state = state_of("/a", "/b")
    before = state.page("", "", 0)
    state.put("/a", body, None)
    state.delete("/b", None, None)
    state.put("/c", body, 0)
    state.put("/c", body, 5)
    state.rollback()
    assert state.page("", "", 0) == before
    assert [state.latest(key) for key in ("/a", "/b", "/c")] == [*before.entries, None]
    assert state.put("/c", body, 0).entry.revision == 7
    assert state.revision == 2


def test_earlier_page_undoes_creations_changes_and_deletions() -> None:
    state = state_of("/a", "/b", "/d")
    then: dict[str, Entry | None] = {
        "/a": None,  # was created since
        "/b": Entry("/b", b"older", 1, 1),  # was changed since
        "/c": Entry("/c", b"gone", 2, 2),  # was deleted since
    }
    page = state.page_at(2, then, "/", "", 0)
    assert [each.key for each in page.entries] == ["/b", "/c", "/d"]
    assert page.entries[0].value == b"older"
    assert (page.revision, page.remaining) == (2, 0)
    short = state.page_at(2, then, "/", "", 1)
    assert ([each.key for each in short.entries], short.remaining) == (["/b"], 2)
    last = state.page_at(2, then, "/", "/b", 2)
    assert ([each.key for each in last.entries], last.remaining) == (["/c", "/d"], 0)
