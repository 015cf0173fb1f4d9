"""A TestSession as the command line shows it: pure functions of its view and the time."""

from collections.abc import Sequence
from datetime import datetime

from grange.api import codec, timestamps
from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import (
    CANCELED,
    ERROR,
    FINAL_PHASES,
    PASSED,
    QUEUED,
    TEST_FAILED,
    SessionComponentStatus,
    TestSession,
)
from grange.api.meta import Document

INFRASTRUCTURE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_CODES = {PASSED: 0, TEST_FAILED: 1, ERROR: INFRASTRUCTURE, CANCELED: INTERRUPTED}
"""Exit code of a verb that waits for a session, by its verdict."""

_VERDICTS = {"Succeeded": PASSED, "Failed": TEST_FAILED, "Errored": ERROR, "Cancelled": CANCELED}
_HEALTHY = frozenset({"Ready", "Succeeded"})


def view(document: Document) -> TestSession:
    """The typed view of a TestSession's document."""
    return codec.convert(document, TestSession)


def label(session: TestSession) -> str:
    """Kind and name, as other verbs take them."""
    return f"{TESTSESSION.short_names[0]}/{session.metadata.name}"


def phase(session: TestSession) -> str:
    """Its phase; ``Queued`` before a controller has seen it."""
    return session.status.phase or QUEUED


def verdict(session: TestSession) -> str:
    """Its verdict; of a session that has ended without one, what its phase stands for."""
    return session.status.verdict or _VERDICTS.get(session.status.phase, "")


def is_finished(session: TestSession) -> bool:
    """Whether its phase is final."""
    return session.status.phase in FINAL_PHASES


def exit_code(session: TestSession) -> int:
    """0 passed, 1 failed, 2 infrastructure, 130 cancelled; 2 where there is no verdict."""
    return EXIT_CODES.get(verdict(session), INFRASTRUCTURE)


def detail(session: TestSession) -> str:
    """Reason and message, and while it waits for machines its position in the queue."""
    status = session.status
    text = ": ".join(filter(None, [status.reason, status.message]))
    if phase(session) != QUEUED or not status.position:
        return text
    waiting = f"position {status.position}"
    if status.expected_start:
        waiting += f", expected to start at {status.expected_start}"
    return f"{waiting}; {text}" if text else waiting


def started(session: TestSession) -> str:
    """When its time begins: with its machines, else with its creation; RFC 3339."""
    return session.status.start_time or session.metadata.creation_timestamp or ""


def seconds(session: TestSession, now: datetime) -> float:
    """For how long it has run, or ran; 0 where nothing is known."""
    begin = timestamps.parse_or(started(session), now)
    end = timestamps.parse_or(session.status.completion_time, now)
    return max(0.0, (end - begin).total_seconds())


def failing(session: TestSession) -> Sequence[SessionComponentStatus]:
    """The components that explain a bad end, the likely cause first; empty where none does.

    Those that failed come first, in the order in which they ended: what fails later is often a
    consequence. Without any, those that never became ready.
    """
    found = [item for item in session.status.components if item.health == "Failed"]
    if found:
        return sorted(found, key=lambda item: item.finished_time or "~")
    if verdict(session) == PASSED:
        return []
    return [item for item in session.status.components if item.health not in _HEALTHY]
