"""Sinks by URL: the table is the only place that a new sink is named in."""

from types import MappingProxyType

import pytest
from tests.support.memory_sink import MemorySink

from grange.alerts.alerts import Alert, SinkTools
from grange.alerts.targets import TARGETS, InvalidTarget, SinkTarget, check_url, open_sink
from grange.alerts.webhook import WebhookSink
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> SinkTools:
    return SinkTools(clock, rng, log, registry())


class Pager(MemorySink):
    """A sink as a stranger would add it."""

    def __init__(self, url: str, tools: SinkTools) -> None:
        super().__init__()
        self.url = url


def test_new_sink_is_one_class_and_one_line(tools: SinkTools) -> None:
    targets = MappingProxyType({**TARGETS, "pager": SinkTarget(Pager)})
    sink = open_sink("pager://team", tools, targets)
    assert isinstance(sink, Pager)
    sink.raised(Alert("farm/x", "store_went_back", "look"))
    assert sink.url == "pager://team"
    with pytest.raises(
        InvalidTarget, match="write a URL like http://host/path or https://host/path"
    ):
        open_sink("pager://team", tools)


def test_target_states_whether_it_needs_a_host(tools: SinkTools) -> None:
    targets = MappingProxyType({**TARGETS, "file": SinkTarget(Pager, needs_host=False)})
    sink = open_sink("file:///var/log/alerts", tools, targets)
    assert isinstance(sink, Pager)
    assert sink.url == "file:///var/log/alerts"
    for url in ("https:///path", "file://[bad"):
        with pytest.raises(
            InvalidTarget, match="like file:///path or http://host/path or https://host/path"
        ):
            check_url(url, targets)


def test_http_targets_are_webhooks(tools: SinkTools) -> None:
    for scheme in ("http", "https"):
        assert isinstance(open_sink(f"{scheme}://host/path", tools), WebhookSink)


def test_check_url_keeps_secrets_out_of_errors() -> None:
    with pytest.raises(InvalidTarget) as caught:
        check_url("ftp://secret/x")
    assert "secret" not in str(caught.value)
