"""The page of a session: complete, safe whatever it shows, and free of anything from elsewhere."""

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.unit.evidence.session_documents import DRIVER, SERVER, node, session

from grange.evidence import session_record, session_report
from grange.evidence.session_record import KeptFile, SessionRecord

VOID = {"meta", "line", "rect", "polyline", "circle"}
HISTORY = {"p99": [1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.01, 1.0]}


class Page(HTMLParser):
    """Checks that elements are balanced, and collects them."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def record(**changed: Any) -> SessionRecord:
    times = {"startedTime": "2026-11-21T10:01:05Z"}
    components = [{**SERVER, **times}, {**DRIVER, **times, "finishedTime": "2026-11-21T10:02:00Z"}]
    made = session_record.record_of(
        session(**{"components": components, **changed}), [node("m0"), node("m1")]
    )
    return session_record.with_files(
        made,
        {"bench-x7-driver": [KeptFile("logs/1/bench-x7-driver/main.log", 9)]},
        {"bench-x7-driver": [KeptFile("core", 1 << 33, "too large")]},
        {"bench-x7-driver": "the driver's end\n", "bench-x7-server": "the server's end\n"},
    )


def test_page_shows_the_session() -> None:
    page = Page(session_report.render(record(), history=HISTORY))
    for part in (
        *("bench-x7", "Passed", "90.5 s", "server@sha256:2", "50 % done", "6.1.0"),
        *("logs/1/bench-x7-driver/main.log", "the driver's end", "the server's end", "too large"),
        *("1.25 ms", "Worse", "waiting for machines", "provisioning", '"qps": 100'),
    ):
        assert part in page.text
    assert [tag for tag, _ in page.tags].count("svg") == 2


def test_page_loads_nothing_and_runs_nothing() -> None:
    page = session_report.render(record(), history=HISTORY)
    found = Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.tags}
    assert not re.search(rb"https?://|url\(|@import|\bon[a-z]+=|javascript:", page)
    policy = next(a for tag, a in found.tags if tag == "meta" and "http-equiv" in a)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_logs_replace_the_tails() -> None:
    path = "logs/1/bench-x7-driver/main.log"
    page = Page(session_report.render(record(), logs={path: "the whole log"}))
    assert "the whole log" in page.text
    assert "the driver's end" not in page.text


def test_failed_component_is_shown_open() -> None:
    failed = {**DRIVER, "health": "Failed", "exitCode": 3, "message": "exit code 3"}
    page = Page(
        session_report.render(record(verdict="Failed", phase="Failed", components=[failed]))
    )
    assert ("details", {"open": None}) in page.tags
    assert "exit code 3" in page.text


def test_message_of_a_component_comes_before_its_image() -> None:
    """An image with its digest is long, and would move the message out of sight."""
    failed = {**DRIVER, "health": "Failed", "message": "OOMKilled", "image": "driver@sha256:1"}
    page = session_report.render(record(verdict="Failed", phase="Failed", components=[failed]))
    table = page.partition(b'<table class="components">')[2].partition(b"</table>")[0]
    assert 0 < table.index(b"OOMKilled") < table.index(b"driver@sha256:1")


@pytest.mark.parametrize("status", [{}, {"phase": "Queued"}])
def test_session_that_has_not_begun_has_a_page(status: dict[str, Any]) -> None:
    document = session()
    document["status"] = status
    assert "Queued" in Page(session_report.render(session_record.record_of(document))).text


def test_threshold_of_the_spec_decides() -> None:
    document = session()
    document["spec"]["evidence"] = {
        "metrics": [{"name": "p99", "jsonPath": "{.p99}", "threshold": 0.5}]
    }
    made = session_record.record_of(document)
    assert session_report.compare(made, HISTORY)["p99"].verdict == "Unchanged"
    made = msgspec.structs.replace(made, thresholds={})
    assert session_report.compare(made, HISTORY)["p99"].verdict == "Worse"


@given(st.text(), st.lists(st.floats(-1e12, 1e12), max_size=8))
def test_any_text_is_shown_and_never_markup(text: str, values: list[float]) -> None:
    hostile = f"</pre><script>alert(1)</script>{text}"
    made = msgspec.structs.replace(
        record(message=hostile), name=hostile, notes=(hostile,), properties={hostile: hostile}
    )
    page = Page(session_report.render(made, history={"p99": values}, logs={"x": hostile}))
    assert "script" not in {tag for tag, _ in page.tags}


def test_many_components_are_drawn_up_to_a_bound() -> None:
    times = {"startedTime": "2026-11-21T10:01:05Z"}
    many = [{**SERVER, **times, "name": f"server-{number}"} for number in range(200)]
    page = session_report.render(record(components=many)).decode()
    assert "143 further components are not drawn" in page
    assert page.count("<rect") == 60
