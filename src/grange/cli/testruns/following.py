"""Follows one session and its logs until nothing more is to come."""

from collections.abc import Callable
from contextlib import suppress

from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.base.tasks import Nursery
from grange.cli import testsession_lookup
from grange.cli.session import ApiSession
from grange.cli.testruns.component_logs import ComponentLogs
from grange.cli.watched_object import TRANSIENT, WatchedObject

_LOGS_END_S = 5.0  # the pods are gone by then; a stream that is still open has no end to come

See = Callable[[Document | None], bool]


async def follow(opened: ApiSession, session: Document, logs: ComponentLogs, see: See) -> None:
    """Read logs while the session goes on.

    Args:
        opened: the connection.
        session: as it was read or created.
        logs: its logs.
        see: gets the session whenever it has changed, None when it is gone; whether it has ended.
    """
    meta = session["metadata"]
    subject = WatchedObject(opened, TESTSESSION, meta["name"], meta["namespace"], pods=False)
    readers = Nursery("logs")
    async with Nursery("session") as nursery:
        for watch in subject.watches:
            nursery.start(watch())
        async with readers:
            pods = nursery.start(logs.follow(readers))
            while True:
                await subject.changed(None)
                if subject.is_known and see(_same(subject.document, meta["uid"])):
                    break
            pods.cancel()
            with suppress(*TRANSIENT):  # then the watch has started all readers that there are
                for pod in await testsession_lookup.pods_of(opened, session):
                    logs.start(readers, pod)
            nursery.start(_end(opened, readers))
        nursery.cancel()


def _same(found: Document | None, uid: str) -> Document | None:
    """The session itself; None for a later one of its name."""
    return found if found is not None and found["metadata"]["uid"] == uid else None


async def _end(opened: ApiSession, readers: Nursery) -> None:
    await opened.env.clock.sleep(_LOGS_END_S)
    readers.cancel()
