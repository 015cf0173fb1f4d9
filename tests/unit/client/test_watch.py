"""A watch's bytes become the same events however they are cut."""

import itertools
import json

import pytest
from hypothesis import given, settings, strategies as st

from grange.api.kinds import CONFIGMAP, POD
from grange.api.status import Expired, InternalError, ServiceUnavailable
from grange.client import watcher
from grange.client.watcher import Frames


def line(kind: str, name: str, version: int = 1, **extra: object) -> bytes:
    obj = {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}, **extra}
    return json.dumps({"type": kind, "object": obj}, ensure_ascii=False).encode() + b"\n"


ERROR = (
    json.dumps(
        {
            "type": "ERROR",
            "object": {
                "kind": "Status",
                "status": "Failure",
                "code": 410,
                "reason": "Expired",
                "message": "too old",
            },
        }
    ).encode()
    + b"\n"
)


@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(st.text(alphabet="aé漢🙂", min_size=1, max_size=4), max_size=6),
    cuts=st.lists(st.integers(0, 600), max_size=12),
)
def test_any_cut_gives_the_same_events(names: list[str], cuts: list[int]) -> None:
    """Chunks end where the network ends them, inside a character if need be."""
    stream = b"".join(line("ADDED", name, number) for number, name in enumerate(names))
    marks = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    frames = Frames(POD)
    events = [
        (event.type, event.object.metadata.name)
        for start, end in itertools.pairwise(marks)
        for event in frames.feed(stream[start:end])
    ]
    frames.finish()
    assert events == [("ADDED", name) for name in names]


def test_blank_lines_are_nothing() -> None:
    frames = Frames(POD)
    events = frames.feed(b"\n" + line("ADDED", "a") + b"\n\n" + line("DELETED", "a"))
    assert [event.type for event in events] == ["ADDED", "DELETED"]


def test_error_event_comes_after_the_events_before_it() -> None:
    """Events that precede an error happened; losing them would cost a relist more than needed."""
    frames = Frames(POD)
    events = frames.feed(line("ADDED", "a") + ERROR + line("ADDED", "b"))
    assert [event.object.metadata.name for event in events] == ["a"]
    assert isinstance(frames.error, Expired)
    assert frames.feed(line("ADDED", "c")) == []


def test_error_event_is_seen_for_kinds_with_status_views() -> None:
    frames = Frames(CONFIGMAP)
    assert frames.feed(ERROR) == []
    assert isinstance(frames.error, Expired)


def test_gone_means_expired_whatever_its_reason() -> None:
    body = {"kind": "Status", "code": 410, "reason": "Gone", "message": "x"}
    frames = Frames(POD)
    frames.feed(json.dumps({"type": "ERROR", "object": body}).encode() + b"\n")
    assert isinstance(frames.error, Expired)


def test_bookmark_with_nulls_gives_its_version() -> None:
    """Servers of the field send bookmarks as empty objects, nulls included."""
    body = line("BOOKMARK", "", 17, spec={"containers": None}, status={})
    (event,) = Frames(POD).feed(body)
    assert (event.type, event.object.metadata.resource_version) == ("BOOKMARK", "17")


def test_object_that_does_not_fit_is_named_not_dropped() -> None:
    frames = Frames(POD)
    events = frames.feed(
        line("ADDED", "a") + line("MODIFIED", "b", 5, spec={"nodeName": 3}) + line("ADDED", "c")
    )
    assert [event.type for event in events] == ["ADDED", watcher.UNDECODABLE, "ADDED"]
    assert str(events[1].object.key) == "ns/b"
    assert events[1].object.metadata.resource_version == "5"


def test_end_inside_an_event_is_a_broken_stream() -> None:
    frames = Frames(POD)
    frames.feed(line("ADDED", "a")[:-5])
    with pytest.raises(ServiceUnavailable):
        frames.finish()


def test_end_after_a_whole_event_is_fine() -> None:
    frames = Frames(POD)
    frames.feed(line("ADDED", "a"))
    frames.finish()


def test_line_without_end_is_bounded() -> None:
    """A server that never ends its line must not fill our memory."""
    frames = Frames(POD, limit_bytes=1000)
    frames.feed(b"x" * 900)
    with pytest.raises(InternalError, match="longer than 1000"):
        frames.feed(b"x" * 200)


@pytest.mark.parametrize("junk", [b"<html>\n", b"[]\n", b'{"type":1}\n', b"\xff\xfe\n"])
def test_junk_is_an_internal_error(junk: bytes) -> None:
    with pytest.raises(InternalError):
        Frames(POD).feed(junk)
