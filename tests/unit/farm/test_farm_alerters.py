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
    Alerts,
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


async def told_by(alerter: WebhookAlerter, clock: Clock, for_s: float) -> None:
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        await clock.sleep(for_s)
        nursery.cancel()


@pytest.mark.parametrize(
    ("answers", "attempts", "taken", "outcomes"),
    [
        ((), 1, 1, {"ok": 1}),
        ((500, ConnectionError(), 429), 4, 1, {"failed": 3, "ok": 1}),
        ((403,), 1, 0, {"refused": 1}),
        ((302,), 1, 0, {"refused": 1}),
        ((500,) * 12, 13, 1, {"failed": 12, "ok": 1}),
    ],
)
async def test_check_p2_webhook_retries_what_may_help_and_counts(
    clock: Clock,
    rng: Stream,
    log: Logger,
    answers: tuple[int, ...],
    attempts: int,
    taken: int,
    outcomes: dict[str, int],
) -> None:
    """An hour without an answer costs an hour, and not the alert."""
    receiver, counts = Receiver(*answers), metrics.registry()
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log, metrics=counts)
    alerter.raised(alert())
    await told_by(alerter, clock, 3600)
    assert (receiver.attempts, len(receiver.taken)) == (attempts, taken)
    found = {
        outcome: counts.get_sample_value("grange_alert_deliveries_total", {"outcome": outcome})
        for outcome in ("ok", "failed", "refused", "abandoned")
    }
    assert {outcome: int(count) for outcome, count in found.items() if count} == outcomes
    assert counts.get_sample_value("grange_alert_waiting") == 0


async def test_check_p4_webhook_forgets_nothing_however_many_wait(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    receiver = Receiver()
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log)
    for number in range(300):
        alerter.raised(alert(f"rc-{number}"))
    alerter.resolved(alert("rc-299"))  # over before it was sent: nobody need hear of it
    await told_by(alerter, clock, 1)
    assert receiver.taken == [("firing", f"rc-{number}") for number in range(299)]


async def test_check_p4_of_each_alert_the_last_word_waits_and_no_other(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A trouble that comes and goes while nobody answers fills no memory and comes out right."""
    receiver = Receiver(*(503,) * 5)
    counts = metrics.registry()
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log, metrics=counts)
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        for name in ("ends", "stays"):
            alerter.raised(alert(name))
        await clock.sleep(4)  # both were tried: it may have been heard
        for _ in range(500):
            for name in ("ends", "stays"):
                alerter.resolved(alert(name))
                alerter.raised(alert(name))
        alerter.resolved(alert("ends"))
        assert counts.get_sample_value("grange_alert_waiting") == 2
        await clock.sleep(600)
        nursery.cancel()
    assert sorted(receiver.taken) == [("firing", "stays"), ("resolved", "ends")]


async def test_end_during_sending_of_the_beginning_follows_it(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    receiver = Receiver()

    async def slow(body: bytes) -> int:
        await clock.sleep(5)
        return await receiver(body)

    alerter = WebhookAlerter(slow, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        alerter.raised(alert())
        await clock.sleep(1)
        alerter.resolved(alert())
        await clock.sleep(60)
        nursery.cancel()
    assert [status for status, _ in receiver.taken] == ["firing", "resolved"]


async def test_undeliverable_alert_does_not_hold_up_others(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    receiver = Receiver()

    async def picky(body: bytes) -> int:
        return 500 if b"odd" in body else await receiver(body)

    alerter = WebhookAlerter(picky, clock=clock, rng=rng, log=log)
    for name in ("odd", "a", "b"):
        alerter.raised(alert(name))
    await told_by(alerter, clock, 10)
    assert [about for _, about in receiver.taken] == ["a", "b"]


@pytest.mark.parametrize(("answer", "abandoned"), [(200, 0), (500, 2)])
async def test_alerts_waiting_at_stop_are_tried_once_more_or_counted(
    clock: Clock, rng: Stream, log: Logger, answer: int, abandoned: int
) -> None:
    receiver, counts = Receiver(*(500,) * 3, *(answer,) * 10), metrics.registry()
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log, metrics=counts)
    for name in ("a", "b"):
        alerter.raised(alert(name))
    await told_by(alerter, clock, 5)
    assert len(receiver.taken) == 2 - abandoned
    lost = counts.get_sample_value("grange_alert_deliveries_total", {"outcome": "abandoned"})
    assert (lost or 0) == abandoned


async def test_all_words_about_one_trouble_bear_one_key(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The receiver may have heard one before, from us or from another process."""
    said: list[tuple[str, str]] = []

    async def read(body: bytes) -> int:
        word = msgspec.json.decode(body)
        said.append((word["status"], word["key"]))
        return 200

    for _ in range(2):
        alerter = WebhookAlerter(read, clock=clock, rng=rng, log=log)
        async with Nursery() as nursery:
            nursery.start(alerter.run())
            alerter.raised(alert())
            await clock.sleep(1)
            alerter.resolved(Alert("default/web", "short", "other words"))
            await clock.sleep(1)
            nursery.cancel()
    assert said == [("firing", "default/web/short"), ("resolved", "default/web/short")] * 2


async def test_webhook_tells_the_end_of_what_another_process_told(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    receiver = Receiver()
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log)
    alerter.adopted(alert("a"))
    alerter.resolved(alert("a"))
    alerter.adopted(alert("b"))
    alerter.left(alert("b"))
    await told_by(alerter, clock, 1)
    assert receiver.taken == [("resolved", "a")]


@pytest.mark.parametrize("is_over", [True, False])
async def test_alert_left_while_receiver_was_away_is_sent_unless_over(
    clock: Clock, rng: Stream, log: Logger, *, is_over: bool
) -> None:
    receiver = Receiver(503, 503, 503, 503)
    alerter = WebhookAlerter(receiver, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(alerter.run())
        alerter.raised(alert())
        await clock.sleep(1)
        alerter.left(alert())
        if is_over:
            alerter.dropped(alert())
        await clock.sleep(60)
        nursery.cancel()
    assert receiver.taken == [("resolved" if is_over else "firing", "default/web")]


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
    await told_by(alerter, clock, 300)
    assert len(taken) == 9, "with growing delays, and once more at the end"


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

        adopted = left = dropped = resolved

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


def test_alert_that_came_back_is_resolved_and_not_dropped() -> None:
    class WithDropped(MemoryAlerter):
        def dropped(self, alert: Alert) -> None:
            self.history.append(("dropped", alert))

    memory = WithDropped()
    alerts = Alerts(memory)
    alerts.fire(alert())
    alerts.leave("default/web", "short")
    assert alerts.active() == []
    assert alerts.adopt(alert())
    assert alerts.clear("default/web", "short")
    assert [what for what, _ in memory.history] == ["raised", "left", "adopted", "resolved"]
    alerts.fire(alert())
    alerts.leave("default/web", "short")
    assert not alerts.clear("default/web", "short")
    assert [what for what, _ in memory.history[4:]] == ["raised", "left", "dropped"]
