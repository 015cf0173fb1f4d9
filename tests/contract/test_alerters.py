"""What every ``Alerter`` promises: it never blocks, never raises, and stands repetitions."""

from collections.abc import Callable

import pytest

from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.reconcile.farm.alerts import (
    HIGH,
    Alert,
    Alerter,
    Alerts,
    GaugeAlerter,
    LogAlerter,
    MemoryAlerter,
    Several,
)
from grange.reconcile.farm.webhook import WebhookAlerter

Make = Callable[[Clock, Stream, Logger], Alerter]


async def _dead(body: bytes) -> int:
    raise ConnectionError


ALERTERS: dict[str, Make] = {
    "log": lambda clock, rng, log: LogAlerter(log),
    "memory": lambda clock, rng, log: MemoryAlerter(),
    "gauge": lambda clock, rng, log: GaugeAlerter(metrics.registry()),
    "webhook": lambda clock, rng, log: WebhookAlerter(_dead, clock=clock, rng=rng, log=log),
    "several": lambda clock, rng, log: Several([LogAlerter(log), MemoryAlerter()], log),
}


@pytest.fixture(params=sorted(ALERTERS))
def alerter(request: pytest.FixtureRequest, clock: Clock, rng: Stream, log: Logger) -> Alerter:
    return ALERTERS[request.param](clock, rng, log)


def alert(reason: str = "short", about: str = "default/web") -> Alert:
    return Alert(about, reason, "3 of 5 replicas have no node; label more nodes", HIGH)


async def test_an_alert_begins_and_ends(alerter: Alerter) -> None:
    alerter.raised(alert())
    alerter.resolved(alert())
    alerter.raised(alert())
    alerter.resolved(alert())


async def test_an_alert_passes_from_one_process_to_another(alerter: Alerter) -> None:
    alerter.adopted(alert())
    alerter.left(alert())
    alerter.dropped(alert())
    alerter.adopted(alert())
    alerter.resolved(alert())


async def test_alerts_of_several_things_go_on_side_by_side(alerter: Alerter) -> None:
    several = [alert(reason, about) for about in ("a", "b") for reason in ("short", "stuck")]
    for one in several:
        alerter.raised(one)
    for one in reversed(several):
        alerter.resolved(one)


async def test_many_at_once_neither_block_nor_raise(alerter: Alerter, clock: Clock) -> None:
    started = clock.monotonic()
    for number in range(1000):
        alerter.raised(alert(about=f"default/web-{number}"))
    assert clock.monotonic() == started


async def test_behind_alerts_each_is_told_once_and_its_end_once(alerter: Alerter) -> None:
    """The alerters are told of changes only; what repeats is kept from them."""
    told: list[str] = []

    class Counted:
        def raised(self, alert: Alert) -> None:
            told.append("raised")
            alerter.raised(alert)

        def resolved(self, alert: Alert) -> None:
            told.append("resolved")
            alerter.resolved(alert)

        def adopted(self, alert: Alert) -> None:
            told.append("adopted")
            alerter.adopted(alert)

        def left(self, alert: Alert) -> None:
            told.append("left")
            alerter.left(alert)

        def dropped(self, alert: Alert) -> None:
            told.append("dropped")
            alerter.dropped(alert)

    alerts = Alerts(Counted())
    for _ in range(3):
        alerts.fire(alert())
    for _ in range(3):
        alerts.clear("default/web", "short")
    for _ in range(3):
        alerts.adopt(alert())
    for _ in range(3):
        alerts.leave("default/web", "short")
    for _ in range(3):
        alerts.clear("default/web", "short")
    assert told == ["raised", "resolved", "adopted", "left", "dropped"]
