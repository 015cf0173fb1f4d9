"""Starts sessions for clients, and shows each of them as a long-running operation."""

from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

import grange
from grange.api import timestamps
from grange.api.kinds.testsession import TestSession
from grange.base.clock import Clock, LoopClock
from grange.controllers.testsession.library.library_errors import SessionUnknownError
from grange.controllers.testsession.library.session_records import (
    RecordedEvent,
    SessionEventKind,
    SessionStore,
)

PREFIX = "operations/"
"""Begins the name of an operation; the name of its session follows."""

OPERATION_CODES = {SessionEventKind.ERROR: "UNKNOWN", SessionEventKind.CANCELLED: "CANCELLED"}
"""How an operation has failed, by the last event of its session."""


class SessionScheduler(Protocol):
    """Runs sessions; a controller is one."""

    def schedule(self, session: TestSession | None) -> None:
        """Enqueue a session and return."""


@dataclass(frozen=True, slots=True)
class OperationResponse:
    """What an operation gives that is done and has no error.

    Attributes:
        driver_logs: output of the driver.
        elapsed_s: from the start of the operation to its end.
    """

    driver_logs: bytes
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class SessionOperation:
    """A session, as an operation.

    Attributes:
        name: ``operations/<session>``.
        version: of the service.
        latest_event: of the session; None as long as it has none.
        is_done: whether the session has ended.
        code: how it has failed; empty if it has not.
        message: why.
        response: its result; None if there is none.
    """

    name: str
    version: str
    latest_event: RecordedEvent | None = None
    is_done: bool = False
    code: str = ""
    message: str = ""
    response: OperationResponse | None = None


class SessionOperations:
    """Starts sessions and shows what becomes of them.

    Args:
        scheduler: runs them.
        store: where their events go; the scheduler's.
        clock: time.
    """

    def __init__(
        self, scheduler: SessionScheduler, store: SessionStore, *, clock: Clock | None = None
    ) -> None:
        self._scheduler, self._store = scheduler, store
        self._clock = clock or LoopClock()

    def start_test_session(self, session: TestSession) -> SessionOperation:
        """Store and schedule a session.

        Raises:
            SessionExistsError: its name is taken; it is not scheduled.
            SessionLibraryError: the scheduler has refused it; it is not stored any more.
        """
        name = session.metadata.name
        meta = session.metadata
        if not meta.creation_timestamp:
            now = timestamps.rfc3339_micro(self._clock.now())
            session = replace(session, metadata=replace(meta, creation_timestamp=now))
        self._store.store_session(session)
        try:
            self._scheduler.schedule(session)
        except BaseException:
            self._store.delete_session(name)
            raise
        return self.get_operation(f"{PREFIX}{name}")

    def get_operation(self, name: str) -> SessionOperation:
        """How a session stands.

        INTERNAL_ERROR is not the end of a session: its verdict follows.

        Raises:
            SessionUnknownError: the name is not that of an operation, or there is no such session.
        """
        session = self._store.get_session(name.removeprefix(PREFIX))
        if not name.startswith(PREFIX) or session is None:
            raise SessionUnknownError(
                f'operation "{name}" is not known; a name is {PREFIX}<session>, check the session'
            )
        event = self._store.latest_event(session.metadata.name)
        version = grange.__version__
        if event is None or not event.kind.is_terminal:
            return SessionOperation(name, version, event)
        if event.kind is not SessionEventKind.DONE:
            code = OPERATION_CODES[event.kind]
            return SessionOperation(
                name, version, event, is_done=True, code=code, message=event.description
            )
        started = timestamps.parse_or(session.metadata.creation_timestamp, event.time)
        elapsed_s = max(0.0, (event.time - started).total_seconds())
        response = OperationResponse(event.driver_logs, elapsed_s)
        return SessionOperation(name, version, event, is_done=True, response=response)
