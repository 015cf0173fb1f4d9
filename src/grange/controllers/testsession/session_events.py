"""The events in a session's status: their types, and which are kept."""

from collections.abc import Sequence

from grange.api.kinds import testsession
from grange.api.kinds.testsession import SessionEvent

QUEUE, ACCEPT, PROVISION, RUN = "QUEUE", "ACCEPT", "PROVISION", "RUN"
INTERNAL_ERROR, RETRY = "INTERNAL_ERROR", "RETRY"
DONE, ERROR, CANCELLED = "DONE", "ERROR", "CANCELLED"

TERMINAL_EVENTS = {
    testsession.PASSED: DONE,
    testsession.TEST_FAILED: ERROR,
    testsession.ERROR: ERROR,
    testsession.CANCELED: CANCELLED,
}

_ATTEMPTS_KEPT = 10  # a status of hundreds of attempts would outgrow what a server stores


def latest(events: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
    """The first event, and those of the last ten attempts that ended and of the present one."""
    ends = [at for at, event in enumerate(events) if event.type == RETRY]
    if len(ends) <= _ATTEMPTS_KEPT:
        return tuple(events)
    return (events[0], *events[ends[-_ATTEMPTS_KEPT - 1] + 1 :])


def events_since(
    before: Sequence[SessionEvent], after: Sequence[SessionEvent]
) -> tuple[SessionEvent, ...]:
    """The events that came after the last one of an earlier status."""
    if not before:
        return tuple(after)
    at = next((at for at in reversed(range(len(after))) if after[at] == before[-1]), -1)
    return tuple(after[at + 1 :])
