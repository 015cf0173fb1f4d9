"""Where alerts go: a webhook that fails, a gauge, several places of which one is broken."""

import msgspec
import pytest

from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.reconcile.farm.alerts import (
    HIGH,
    LOW,
    Alert,
    GaugeAlerter,
    LogAlerter,
    MemoryAlerter,
    Several,
)
from grange.reconcile.farm.webhook import WebhookAlerter


class Receiver:
    """Answers with what it is told to, then with 200."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.attempts = 0
        self.taken: list[tuple[str, str]] = []

    async def __call__(self, body: bytes) -> int:
        self.attempts += 1
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        if answer < 300:
            said = msgspec.json.decode(body)
            self.taken.append((said["status"], said["about"]))
        return answer


def alert(about: str = "default/web") -> Alert:
    return Alert(about, "short", "too few nodes")


@pytest.mark.parametrize(
    ("answers", "attempts", "taken"),
    [
        ((), 1, 1),
        ((500, ConnectionError(), 429), 4, 1),
        ((403,), 1, 0),
        ((500,) * 9, 5, 0),
    ],
)
async def test_check_p2_webhook_tries_again_what_may_help_and_gives_up(
    clock: Clock, rng: Stream, log: Logger, answers: tuple[int, ...], attempts: int, taken: int
) -> None:
    receiver = Receiver(*answers)
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log)
    alerter.raised(alert())
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        await clock.sleep(600)
        nursery.cancel()
    assert (receiver.attempts, len(receiver.taken)) == (attempts, taken)


async def test_check_p4_webhook_keeps_the_newest_and_drops_what_is_stale(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    receiver = Receiver()
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log)
    for number in range(150):
        alerter.raised(alert(f"rc-{number}"))
    alerter.resolved(alert("rc-149"))  # over before it was sent: nobody need hear of it
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        await clock.sleep(1)
        nursery.cancel()
    assert receiver.taken == [("firing", f"rc-{number}") for number in range(50, 149)]


async def test_webhook_that_hangs_holds_up_nobody_for_ever(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    taken: list[float] = []

    async def hang(body: bytes) -> int:
        taken.append(clock.monotonic())
        await clock.sleep(3600)
        return 200

    alerter = WebhookAlerter(hang, clock=clock, rng=rng, log=log)
    alerter.raised(alert())
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        await clock.sleep(300)
        nursery.cancel()
    assert len(taken) == 5


def test_gauge_shows_what_goes_on_and_forgets_what_is_over() -> None:
    registry = metrics.registry()
    alerter = GaugeAlerter(registry)
    alerter.raised(alert())
    line = b'grange_alert_active{about="default/web",reason="short",urgency="low"} 1.0'
    assert line in metrics.exposition(registry)
    alerter.resolved(alert())
    assert b"default/web" not in metrics.exposition(registry)


def test_a_broken_place_does_not_keep_an_alert_from_the_others(log: Logger) -> None:
    class Broken:
        def raised(self, alert: Alert) -> None:
            raise ZeroDivisionError

        def resolved(self, alert: Alert) -> None:
            raise ZeroDivisionError

    memory = MemoryAlerter()
    several = Several([Broken(), memory], log)
    several.raised(alert())
    several.resolved(alert())
    assert [what for what, _ in memory.history] == ["raised", "resolved"]


@pytest.mark.parametrize(("urgency", "level"), [(HIGH, "ERROR"), (LOW, "WARNING")])
def test_an_alert_is_logged_as_loudly_as_it_is_urgent(
    urgency: str, level: str, log: Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """An error needs a person now; who is woken for a shortage of nodes stops listening."""
    alerter = LogAlerter(log)
    told = Alert("default/web", "short", "too few nodes", urgency)
    alerter.raised(told)
    alerter.resolved(told)
    assert [record.levelname for record in caplog.records] == [level, "INFO"]
