"""Events in the order in which they happened, in kubectl's words."""

import re

import click
import pytest
from click.testing import CliRunner
from tests.support.controller_world import world
from tests.unit.cli.sessions import session

from grange.api import timestamps
from grange.api.kinds import EVENT
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.printers import events
from grange.cli.verbs import get
from grange.cli.verbs.events import command, parse_types

NOW = timestamps.parse("2026-01-01T00:10:00Z").timestamp()


def event(name: str, **fields: object) -> Document:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "web"},
        "type": "Normal",
        "reason": "Started",
        "message": "started main\n",
        **fields,
    }


def test_latest_comes_last_however_its_time_is_written() -> None:
    found = [
        event("d", lastTimestamp="2026-01-01T00:09:00.5Z"),
        event("c", lastTimestamp="2026-01-01T00:09:00Z"),
        event("b", eventTime="2026-01-01T00:08:00.000001Z"),
        event("e", lastTimestamp="2026-01-01T00:00:00Z", series={"count": 2, "lastObservedTime": "2026-01-01T00:09:30Z"}),
        event("a"),
    ]  # fmt: skip
    names = [item["metadata"]["name"] for item in events.in_order(found)]
    assert names == ["a", "b", "c", "d", "e"]


def test_within_a_second_the_order_is_that_of_the_writes() -> None:
    found = [event(name, lastTimestamp="2026-01-01T00:09:00Z") for name in ("a", "b")]
    found[0]["metadata"]["resourceVersion"] = "10"
    found[1]["metadata"]["resourceVersion"] = "9"
    assert [item["metadata"]["name"] for item in events.in_order(found)] == ["b", "a"]


async def test_get_lists_events_by_time(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        for name, minute in (("a", 3), ("b", 1), ("c", 2)):
            stamp = f"2026-01-01T00:0{minute}:00Z"
            about = {"kind": "Pod", "name": f"web-{name}", "namespace": "default"}
            fields = {"involvedObject": about, "lastTimestamp": stamp, "firstTimestamp": stamp}
            await there.client.create(EVENT, event(name, **fields), "default")
        for output in ("", "wide", "name", "jsonpath={.items[*].metadata.name}"):
            look = get.Look(output, "", "", no_headers=True, show_labels=False)
            assert await get._get(session(there), [("events", "")], look) == 0
            shown = capsys.readouterr().out
            found = re.findall(r"web-([abc])" if output in ("", "wide") else r"\b([abc])\b", shown)
            assert found == ["b", "c", "a"], output


def test_what_came_again_shows_how_often_and_for_how_long() -> None:
    once = event("a", lastTimestamp="2026-01-01T00:09:55Z", firstTimestamp="2026-01-01T00:09:55Z")
    assert events.age(once, NOW) == "5s"
    again = event(
        "a", count=3, lastTimestamp="2026-01-01T00:09:55Z", firstTimestamp="2026-01-01T00:08:00Z"
    )
    assert events.age(again, NOW) == "5s (x3 over 2m)"
    assert events.age(event("a"), NOW) == "<unknown>"


def test_time_that_cannot_be_read_hides_no_event() -> None:
    odd = event("a", lastTimestamp="yesterday", firstTimestamp="2026-01-01T00:09:00Z")
    assert events.age(odd, NOW) == "60s"
    assert events.in_order([odd, event("b", lastTimestamp="")])[1] is odd


def test_row_names_the_object_and_its_namespace_where_wanted() -> None:
    seen = event("a", lastTimestamp="2026-01-01T00:09:00Z")
    cells = ["60s", "Normal", "Started", "Pod/web", "started main"]
    assert events.row(seen, now=NOW, namespace=False) == cells
    assert events.row(seen, now=NOW, namespace=True) == ["default", *cells]


def test_types_are_checked() -> None:
    assert parse_types("") == frozenset()
    assert parse_types("warning, Normal") == {"Warning", "Normal"}
    with pytest.raises(click.UsageError, match="Normal, Warning"):
        parse_types("Error")


def test_object_must_be_named() -> None:
    outcome = CliRunner().invoke(command, ["--for", "pod"], obj=object())
    assert "KIND/NAME" in outcome.output
