"""Records what happens to sessions: in the log, and in the store if there is one."""

from collections.abc import Mapping

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.controllers.testsession.library.session_records import (
    RecordedEvent,
    SessionEventKind,
    SessionStore,
)


class SessionJournal:
    """Writes events; a store that fails does not disturb the session.

    Args:
        store: where events go besides the log; None for nowhere.
        clock: stamps them.
        log: where they go in any case.
    """

    def __init__(self, store: SessionStore | None, *, clock: Clock, log: Logger) -> None:
        self._store, self._clock, self._log = store, clock, log

    def record(
        self,
        session: str,
        kind: SessionEventKind,
        description: str,
        logs: Mapping[str, bytes] | None = None,
    ) -> None:
        """Record an event, now; never raises."""
        event = RecordedEvent(session, kind, self._clock.now(), description, logs or {})
        self._log.info("session event", session=session, event=kind.name, description=description)
        if self._store is None:
            return
        try:
            self._store.store_event(event)
        except Exception as error:  # noqa: BLE001  the store is the user's; sessions go on without it
            self._log.warning("event was not stored", session=session, event=kind.name, error=error)
