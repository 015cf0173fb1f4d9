"""What happened to sessions: event kinds, events, and the store that reports are read from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Protocol

from grange.api import timestamps
from grange.api.kinds.testsession import SessionEvent, TestSession
from grange.controllers.testsession.library.library_errors import (
    SessionExistsError,
    SessionUnknownError,
)

DRIVER_ROLE = "driver"


class SessionEventKind(IntEnum):
    """What an event is about; its name is the ``type`` of events in the status of a TestSession."""

    INTERNAL_ERROR = 0
    QUEUE = 1
    ACCEPT = 2
    PROVISION = 3
    RUN = 4
    DONE = 5
    ERROR = 6
    CANCELLED = 7
    RETRY = 8

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows; a session gets one such event, as its last."""
        return self in (SessionEventKind.DONE, SessionEventKind.ERROR, SessionEventKind.CANCELLED)


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event of a session.

    Attributes:
        session: its name.
        kind: what happened.
        time: when.
        description: for people; a percent sign is one.
        logs: output by component, of the driver and of what failed; only in terminal events.
    """

    session: str
    kind: SessionEventKind
    time: datetime
    description: str = ""
    logs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def driver_logs(self) -> bytes:
        """The driver's output; empty where it has none."""
        return self.logs.get(DRIVER_ROLE, b"")

    def to_event(self) -> SessionEvent:
        """The event as in the status of a TestSession; logs are no part of it."""
        time = timestamps.rfc3339_micro(self.time)
        return SessionEvent(type=self.kind.name, time=time, message=self.description)

    @classmethod
    def from_event(cls, session: str, event: SessionEvent) -> "RecordedEvent":
        """The record of an event in the status of a TestSession.

        Raises:
            KeyError: the type is none that the library has.
            TimestampError: the time is none.
        """
        kind = SessionEventKind[event.type]
        return cls(session, kind, timestamps.parse(event.time), event.message)


class SessionStore(Protocol):
    """Keeps sessions and their events, so that others can follow them."""

    def store_session(self, session: TestSession) -> None:
        """Add a session, which has no events yet.

        Raises:
            SessionExistsError: its name is taken.
        """

    def get_session(self, name: str) -> TestSession | None:
        """The session of this name; None for none."""

    def store_event(self, event: RecordedEvent) -> None:
        """Append an event to those of its session.

        Raises:
            SessionUnknownError: there is no such session.
        """

    def latest_event(self, name: str) -> RecordedEvent | None:
        """The last event of a session; None as long as it has none.

        Raises:
            SessionUnknownError: there is no such session.
        """

    def delete_session(self, name: str) -> None:
        """Remove a session and its events; does nothing where there is none."""


class MemorySessionStore:
    """A ``SessionStore`` that ends with the process."""

    def __init__(self) -> None:
        self._sessions: dict[str, TestSession] = {}
        self._events: dict[str, list[RecordedEvent]] = {}

    def store_session(self, session: TestSession) -> None:
        """Add a session, which has no events yet.

        Raises:
            SessionExistsError: its name is taken.
        """
        name = session.metadata.name
        if name in self._sessions:
            raise SessionExistsError(
                f"session {name} cannot be stored: the name is taken; use another name"
            )
        self._sessions[name] = session
        self._events[name] = []

    def get_session(self, name: str) -> TestSession | None:
        """The session of this name; None for none."""
        return self._sessions.get(name)

    def store_event(self, event: RecordedEvent) -> None:
        """Append an event to those of its session.

        Raises:
            SessionUnknownError: there is no such session.
        """
        self._listed(event.session).append(event)

    def latest_event(self, name: str) -> RecordedEvent | None:
        """The last event of a session; None as long as it has none.

        Raises:
            SessionUnknownError: there is no such session.
        """
        events = self._listed(name)
        return events[-1] if events else None

    def events(self, name: str) -> tuple[RecordedEvent, ...]:
        """All events of a session, in their order.

        Raises:
            SessionUnknownError: there is no such session.
        """
        return tuple(self._listed(name))

    def delete_session(self, name: str) -> None:
        """Remove a session and its events; does nothing where there is none."""
        self._sessions.pop(name, None)
        self._events.pop(name, None)

    def _listed(self, name: str) -> list[RecordedEvent]:
        events = self._events.get(name)
        if events is None:
            raise SessionUnknownError(f"session {name} is not in the store; store it first")
        return events
