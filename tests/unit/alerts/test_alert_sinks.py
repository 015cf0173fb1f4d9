"""Where alerts go: a webhook that fails, a gauge, several places of which one is broken."""

import logging

import msgspec
import pytest
from tests.support.memory_sink import MemorySink

from grange.alerts.alerts import HIGH, LOW, Alert, Alerts
from grange.alerts.sinks import LogSink, MetricSink, MultiSink
from grange.alerts.webhook import WebhookSink
from grange.api import timestamps
from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery


class Receiver:
    """Answers with what the test sets, then with 200."""

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
            shown = msgspec.json.decode(body)
            self.taken.append((shown["status"], shown["about"]))
        return answer


def alert(about: str = "default/web") -> Alert:
    return Alert(about, "short", "too few nodes")


async def run_for(sink: WebhookSink, clock: Clock, for_s: float) -> None:
    async with Nursery() as nursery:
        nursery.start(sink.run())
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
async def test_check_p2_webhook_retries_and_counts(
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
    sink = WebhookSink(receiver, clock=clock, rng=rng, log=log, metrics=counts, repeat_s=7200)
    sink.raised(alert())
    await run_for(sink, clock, 3600)
    assert (receiver.attempts, len(receiver.taken)) == (attempts, taken)
    found = {
        outcome: counts.get_sample_value("grange_alert_deliveries_total", {"outcome": outcome})
        for outcome in ("ok", "failed", "refused", "abandoned")
    }
    assert {outcome: int(count) for outcome, count in found.items() if count} == outcomes
    assert counts.get_sample_value("grange_alert_waiting") == 0


async def test_check_p4_webhook_queue_loses_nothing(clock: Clock, rng: Stream, log: Logger) -> None:
    receiver = Receiver()
    sink = WebhookSink(receiver, clock=clock, rng=rng, log=log)
    for number in range(300):
        sink.raised(alert(f"rc-{number}"))
    sink.resolved(alert("rc-299"))  # over before it was sent: it is not delivered
    await run_for(sink, clock, 1)
    assert receiver.taken == [("firing", f"rc-{number}") for number in range(299)]


async def test_check_p4_webhook_queues_latest_state_only(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A trouble that comes and goes while no receiver answers fills no memory and comes out right."""
    receiver = Receiver(*(503,) * 5)
    counts = metrics.registry()
    sink = WebhookSink(receiver, clock=clock, rng=rng, log=log, metrics=counts)
    async with Nursery() as nursery:
        nursery.start(sink.run())
        for name in ("ends", "stays"):
            sink.raised(alert(name))
        await clock.sleep(4)  # both were tried: it may have been heard
        for _ in range(500):
            for name in ("ends", "stays"):
                sink.resolved(alert(name))
                sink.raised(alert(name))
        sink.resolved(alert("ends"))
        assert counts.get_sample_value("grange_alert_waiting") == 2
        await clock.sleep(250)
        nursery.cancel()
    assert sorted(receiver.taken) == [("firing", "stays"), ("resolved", "ends")]


async def test_webhook_sends_end_after_beginning(clock: Clock, rng: Stream, log: Logger) -> None:
    receiver = Receiver()

    async def slow(body: bytes) -> int:
        await clock.sleep(5)
        return await receiver(body)

    sink = WebhookSink(slow, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(sink.run())
        sink.raised(alert())
        await clock.sleep(1)
        sink.resolved(alert())
        await clock.sleep(60)
        nursery.cancel()
    assert [status for status, _ in receiver.taken] == ["firing", "resolved"]


async def test_webhook_takes_turns_between_alerts(clock: Clock, rng: Stream, log: Logger) -> None:
    receiver = Receiver()

    async def picky(body: bytes) -> int:
        return 500 if b"odd" in body else await receiver(body)

    sink = WebhookSink(picky, clock=clock, rng=rng, log=log)
    for name in ("odd", "a", "b"):
        sink.raised(alert(name))
    await run_for(sink, clock, 10)
    assert [about for _, about in receiver.taken] == ["a", "b"]


@pytest.mark.parametrize(("answer", "abandoned"), [(200, 0), (500, 2)])
async def test_webhook_flushes_when_process_stops(
    clock: Clock, rng: Stream, log: Logger, answer: int, abandoned: int
) -> None:
    receiver, counts = Receiver(*(500,) * 3, *(answer,) * 10), metrics.registry()
    sink = WebhookSink(receiver, clock=clock, rng=rng, log=log, metrics=counts)
    for name in ("a", "b"):
        sink.raised(alert(name))
    await run_for(sink, clock, 5)
    assert len(receiver.taken) == 2 - abandoned
    lost = counts.get_sample_value("grange_alert_deliveries_total", {"outcome": "abandoned"})
    assert (lost or 0) == abandoned


async def test_webhook_key_is_stable(clock: Clock, rng: Stream, log: Logger) -> None:
    """The receiver may have heard one before, from us or from another process."""
    shown: list[tuple[str, str]] = []

    async def read(body: bytes) -> int:
        word = msgspec.json.decode(body)
        shown.append((word["status"], word["key"]))
        return 200

    for _ in range(2):
        sink = WebhookSink(read, clock=clock, rng=rng, log=log)
        async with Nursery() as nursery:
            nursery.start(sink.run())
            sink.raised(alert())
            await clock.sleep(1)
            sink.resolved(Alert("default/web", "short", "other words"))
            await clock.sleep(1)
            nursery.cancel()
    assert shown == [("firing", "default/web/short"), ("resolved", "default/web/short")] * 2


async def test_webhook_repeats_alerts_while_they_last(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Receivers treat an alert as over after ``endsAt``, so it is sent again well before."""
    sent: list[tuple[str, float, float]] = []

    async def receive(body: bytes) -> int:
        state = msgspec.json.decode(body)
        lasts = timestamps.parse(state["endsAt"]) - clock.now()
        sent.append((state["about"], clock.monotonic(), round(lasts.total_seconds())))
        return 200

    sink = WebhookSink(receive, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(sink.run())
        sink.raised(alert("a"))
        await clock.sleep(100)
        sink.raised(alert("b"))
        await clock.sleep(250)
        sink.released(alert("a"))
        await clock.sleep(100)
        sink.resolved(alert("b"))
        await clock.sleep(1000)
        nursery.cancel()
    began = sent[0][1]
    assert [(about, round(at - began), lasts) for about, at, lasts in sent] == [
        ("a", 0, 900),
        ("b", 100, 900),
        ("a", 300, 900),
        ("b", 400, 900),
        ("b", 450, 0),
    ]


async def test_webhook_drops_released_alerts(clock: Clock, rng: Stream, log: Logger) -> None:
    """The next owner sends them; a late one from here could undo its end."""
    receiver = Receiver(503, 503)
    sink = WebhookSink(receiver, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(sink.run())
        sink.raised(alert())
        await clock.sleep(1)
        sink.released(alert())
        await clock.sleep(1000)
        nursery.cancel()
    assert receiver.taken == []


async def test_webhook_does_not_repeat_refused_alerts(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    receiver = Receiver(403)
    sink = WebhookSink(receiver, clock=clock, rng=rng, log=log)
    sink.raised(alert())
    await run_for(sink, clock, 1000)
    assert receiver.attempts == 1


async def test_webhook_times_out(clock: Clock, rng: Stream, log: Logger) -> None:
    taken: list[float] = []

    async def hang(body: bytes) -> int:
        taken.append(clock.monotonic())
        await clock.sleep(3600)
        return 200

    sink = WebhookSink(hang, clock=clock, rng=rng, log=log)
    sink.raised(alert())
    await run_for(sink, clock, 300)
    assert len(taken) == 9, "with growing delays, and once more at the end"


def test_metric_shows_active_alerts() -> None:
    registry = metrics.registry()
    sink = MetricSink(registry)
    sink.raised(alert())
    line = b'grange_alert_active{about="default/web",reason="short",urgency="low"} 1.0'
    assert line in metrics.exposition(registry)
    sink.resolved(alert())
    assert b"default/web" not in metrics.exposition(registry)


def test_broken_sink_does_not_affect_others(log: Logger) -> None:
    class Broken:
        def raised(self, alert: Alert) -> None:
            raise ZeroDivisionError

        def resolved(self, alert: Alert) -> None:
            raise ZeroDivisionError

        released = resolved

    memory = MemorySink()
    several = MultiSink([Broken(), memory], log)
    several.raised(alert())
    several.resolved(alert())
    assert [what for what, _ in memory.history] == ["raised", "resolved"]


@pytest.mark.usefixtures("records")  # while it is there, records of all levels are made
@pytest.mark.parametrize(("urgency", "level"), [(HIGH, "ERROR"), (LOW, "WARNING")])
def test_log_level_follows_urgency(urgency: str, level: str) -> None:
    """An error needs a person now; who is woken for a shortage of nodes stops listening."""
    sink = LogSink(Logger("alerts"))
    reported = Alert("default/web", "short", "too few nodes", urgency)
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[assignment, method-assign]  # all that it is for
    logging.getLogger("grange").addHandler(handler)
    sink.raised(reported)
    sink.resolved(reported)
    logging.getLogger("grange").removeHandler(handler)
    assert [record.levelname for record in kept] == [level, "INFO"]


def test_replace_raises_and_resolves() -> None:
    memory = MemorySink()
    changes: list[None] = []
    alerts = Alerts(memory, changed=lambda: changes.append(None))
    a, b, c = (Alert("default/web", reason, "look") for reason in "abc")
    alerts.fire(Alert("default/db", "a", "another object"))
    alerts.replace("default/web", [a, b])
    alerts.replace("default/web", [b, c])
    assert [(what, alert.reason) for what, alert in memory.history[1:]] == [
        ("raised", "a"),
        ("raised", "b"),
        ("resolved", "a"),
        ("raised", "c"),
    ]
    alerts.release("default/web")
    assert [alert.about for alert in alerts.active()] == ["default/db"]
    assert not alerts.clear("default/web", "b")
    assert len(changes) == 6
