"""Writes the status of sessions, and knows whether the cache has what was written."""

import msgspec

from grange.api import codec
from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import TestSession, TestSessionStatus
from grange.api.meta import Document, preconditions
from grange.api.patch import merge_patch
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.client.client import Client
from grange.reconcile.write_tracker import WriteTracker

_DETAILS_S = 1.0  # no two writes follow each other sooner for details alone


class SessionStatusWriter:
    """Writes statuses under compare-and-set, details not too often.

    Args:
        client: to the API.
        clock: for the time between two writes.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._written = WriteTracker(clock)
        self._wrote_at: dict[str, float] = {}

    def awaits(self, session: TestSession) -> bool:
        """Whether a reconcile waits for the cache to show this object's last write."""
        return self._written.awaited(session.metadata.uid)

    def remaining_s(self, session: TestSession) -> float:
        """How long to wait for the cache to show the last write; zero if it does."""
        return self._written.remaining_s(session)

    def forget(self, session: TestSession) -> None:
        """The session is gone."""
        self._written.forget(session.metadata.uid)
        self._wrote_at.pop(session.metadata.uid, None)

    def deferral_s(self, session: TestSession, new: TestSessionStatus) -> float:
        """How long a write can wait that has only details of components; zero: not at all.

        The pods of a session change one by one, and each write has all of them.
        """
        if new == session.status or _is_urgent(session.status, new):
            return 0.0
        left = self._wrote_at.get(session.metadata.uid, 0.0) + _DETAILS_S - self._clock.monotonic()
        return max(0.0, left)

    async def write(self, session: TestSession, new: TestSessionStatus) -> bool:
        """Write the status under compare-and-set; False if the session changed or is gone."""
        meta = session.metadata
        change = merge_patch.difference(codec.to_document(session.status), codec.to_document(new))
        patch: Document = {"metadata": preconditions(meta), "status": change}
        try:
            written = await self._client.patch(
                TESTSESSION, meta.name, meta.namespace, patch=patch, subresource="status"
            )
        except (NotFound, Conflict):
            return False
        self._written.wrote(written)
        self._wrote_at[meta.uid] = self._clock.monotonic()
        return True


def _is_urgent(old: TestSessionStatus, new: TestSessionStatus) -> bool:
    """Whether more has changed than details of workers: what is decided from is stored at once."""
    details = {
        "components": new.components,
        "message": new.message,
        "observed_generation": new.observed_generation,
    }
    if msgspec.structs.replace(old, **details) != new:
        return True
    return _driver_pod(old) != _driver_pod(new)


def _driver_pod(status: TestSessionStatus) -> str:
    return status.components[-1].pod if status.components else ""
