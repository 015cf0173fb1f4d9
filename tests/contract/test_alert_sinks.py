"""What every ``AlertSink`` promises: it neither blocks nor raises, and accepts repetitions."""

from collections.abc import Callable

import pytest
from tests.support.memory_sink import MemorySink

from grange.alerts.alerts import HIGH, Alert, Alerts, AlertSink
from grange.alerts.sinks import LogSink, MetricSink, MultiSink
from grange.alerts.webhook import WebhookSink
from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Make = Callable[[Clock, Stream, Logger], AlertSink]


async def _dead(body: bytes) -> int:
    raise ConnectionError


SINKS: dict[str, Make] = {
    "log": lambda clock, rng, log: LogSink(log),
    "memory": lambda clock, rng, log: MemorySink(),
    "gauge": lambda clock, rng, log: MetricSink(metrics.registry()),
    "webhook": lambda clock, rng, log: WebhookSink(_dead, clock=clock, rng=rng, log=log),
    "several": lambda clock, rng, log: MultiSink([LogSink(log), MemorySink()], log),
}


@pytest.fixture(params=sorted(SINKS))
def sink(request: pytest.FixtureRequest, clock: Clock, rng: Stream, log: Logger) -> AlertSink:
    return SINKS[request.param](clock, rng, log)


def alert(reason: str = "short", about: str = "default/web") -> Alert:
    return Alert(about, reason, "3 of 5 replicas have no node; label more nodes", HIGH)


async def test_sink_accepts_alert_that_recurs(sink: AlertSink) -> None:
    sink.raised(alert())
    sink.resolved(alert())
    sink.raised(alert())
    sink.resolved(alert())


async def test_sink_accepts_released_alert(sink: AlertSink) -> None:
    sink.raised(alert())
    sink.released(alert())
    sink.raised(alert())
    sink.resolved(alert())


async def test_sink_accepts_several_alerts(sink: AlertSink) -> None:
    several = [alert(reason, about) for about in ("a", "b") for reason in ("short", "stuck")]
    for one in several:
        sink.raised(one)
    for one in reversed(several):
        sink.resolved(one)


async def test_sink_does_not_block(sink: AlertSink, clock: Clock) -> None:
    started = clock.monotonic()
    for number in range(1000):
        sink.raised(alert(about=f"default/web-{number}"))
    assert clock.monotonic() == started


async def test_sink_receives_changes_only(sink: AlertSink) -> None:
    calls: list[str] = []

    class Counted:
        def raised(self, alert: Alert) -> None:
            calls.append("raised")
            sink.raised(alert)

        def resolved(self, alert: Alert) -> None:
            calls.append("resolved")
            sink.resolved(alert)

        def released(self, alert: Alert) -> None:
            calls.append("released")
            sink.released(alert)

    alerts = Alerts(Counted())
    for _ in range(3):
        alerts.fire(alert())
    for _ in range(3):
        alerts.clear("default/web", "short")
    for _ in range(3):
        alerts.replace("default/web", [alert()])
    for _ in range(3):
        alerts.release("default/web")
    for _ in range(3):
        alerts.clear("default/web", "short")
    assert calls == ["raised", "resolved", "raised", "released"]
