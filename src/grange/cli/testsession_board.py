"""The board of one test session, line by line: pure functions of its view and the time."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds.testsession import SessionComponentStatus, SessionEvent, TestSession
from grange.cli import testsession_view
from grange.cli.printers import table

_HEAD = ["COMPONENT", "HEALTH", "NODE", "ADDRESS", "TIME", "MESSAGE"]
_EVENTS = 5


def lines(
    session: TestSession,
    now: datetime,
    output: Mapping[str, Sequence[str]] | None = None,
    *,
    events: int = _EVENTS,
) -> list[str]:
    """The board.

    Args:
        session: the session.
        now: wall time.
        output: last lines of logs, by heading.
        events: how many of the latest events.
    """
    status = session.status
    facts = {
        "Session": testsession_view.label(session),
        "Phase": testsession_view.phase(session),
        "Verdict": status.verdict,
        "Detail": testsession_view.detail(session),
        "Attempt": f"{status.attempt + 1}" if status.attempt else "",
        "Lease": f"ml/{status.lease}" if status.lease else "",
        "Time": timestamps.age(testsession_view.seconds(session, now)),
        "Metrics": ", ".join(metrics(session).values()),
    }
    shown = {key: value for key, value in facts.items() if value}
    width = max(map(len, shown)) + 2
    found = [f"{key + ':':<{width}}{value}" for key, value in shown.items()]
    if status.components:
        over = timestamps.parse_or(status.completion_time, now)
        rows = [component(item, over) for item in status.components]
        found += ["", *table.render([_HEAD, *rows])]
    if status.events:
        found += ["", *table.render([event(item) for item in status.events[-events:]])]
    for heading, tail in (output or {}).items():
        found += ["", f"{heading}:", *(f"  {line}" for line in tail)]
    return found


def component(item: SessionComponentStatus, until: datetime) -> list[str]:
    """The row of a component: its health, where it runs, and for how long it has.

    Args:
        item: the component.
        until: the end of one that has not ended: that of its session, else now.
    """
    took = ""
    if item.started_time:
        begin = timestamps.parse_or(item.started_time, until)
        end = timestamps.parse_or(item.finished_time, until)
        took = timestamps.age(max(0.0, (end - begin).total_seconds()))
    message = component_message(item)
    return [item.name, item.health or "Unknown", item.node, item.address, took, message]


def component_message(item: SessionComponentStatus) -> str:
    """Its message, with its exit code unless it is in there; of one without a pod, that it has none."""
    if not item.health:
        return item.message or "not created"
    code = f"exit code {item.exit_code}" if item.exit_code else ""
    return item.message if code in item.message else f"{code}: {item.message}".strip(": ")


def event(item: SessionEvent) -> list[str]:
    """The row of an event: its time of the day, its type and its message."""
    about = f"{item.component}: {item.message}" if item.component else item.message
    return [clock_time(item.time), item.type, about]


def clock_time(text: str) -> str:
    """The time of the day of an RFC 3339 time, to the second; the text itself where it is none."""
    day, mark, rest = text.partition("T")
    return rest[:8] if mark and day else text


def metrics(session: TestSession) -> dict[str, str]:
    """The figures that the driver reported, by name, each with its unit."""
    return {
        item.name: f"{item.name} {item.value:g}{' ' + item.unit if item.unit else ''}"
        for item in session.status.metrics
    }
