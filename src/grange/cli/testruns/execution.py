"""Runs one planned session: creates it, follows its logs and waits for its end."""

from collections.abc import Sequence
from typing import Protocol

from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.cli import testsession_lookup, testsession_view
from grange.cli.session import ApiSession
from grange.cli.testruns import session_writes
from grange.cli.testruns.component_logs import ComponentLogs, ContainerLog
from grange.cli.testruns.log_files import RunLogFiles
from grange.cli.testruns.tracked_run import SessionRun
from grange.cli.watched_object import WatchedObject

_LOGS_END_S = 5.0  # pods are gone by then; a stream that is still open has no end to come


class RunObserver(Protocol):
    """Is informed of what happens in a run."""

    def updated(self, run: SessionRun) -> None:
        """The session has changed, or is over."""

    def output(self, run: SessionRun, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """A container has written lines."""


async def execute(
    opened: ApiSession, run: SessionRun, observer: RunObserver, files: RunLogFiles
) -> None:
    """Run the session to its end; what goes wrong here is written into ``run.error``."""
    try:
        created = run.document = await session_writes.create(opened, run.planned.document)
        if run.skipped:  # while it was being created
            await session_writes.cancel(opened, created, session_writes.CANCEL_COLLECT)
        observer.updated(run)
        await _follow(opened, run, created, observer, files)
    except GrangeError as error:
        run.error = str(error)
    run.is_over = True
    files.finish(run)
    observer.updated(run)


async def _follow(
    opened: ApiSession,
    run: SessionRun,
    created: Document,
    observer: RunObserver,
    files: RunLogFiles,
) -> None:
    def keep(source: ContainerLog, lines: Sequence[bytes]) -> None:
        run.keep(source, lines)
        files.write(run, source, lines)
        observer.output(run, source, lines)

    meta = created["metadata"]
    logs = ComponentLogs(opened, created, keep)
    subject = WatchedObject(opened, TESTSESSION, meta["name"], meta["namespace"], pods=False)
    readers = Nursery("logs")
    async with Nursery("session") as nursery:
        for watch in subject.watches:
            nursery.start(watch())
        async with readers:
            pods = nursery.start(logs.follow(readers))
            while True:
                await subject.changed(None)
                if subject.is_known and _see(run, subject, meta["uid"], observer):
                    break
            pods.cancel()
            for pod in await testsession_lookup.pods_of(opened, created):
                logs.start(readers, pod)
            nursery.start(_end(opened, readers))
        nursery.cancel()


def _see(run: SessionRun, subject: WatchedObject, uid: str, observer: RunObserver) -> bool:
    """Take over what was seen last; whether nothing more is to come."""
    found = subject.document
    if found is None or found["metadata"]["uid"] != uid:
        session = run.session
        if session is not None and not testsession_view.verdict(session):
            phase = testsession_view.phase(session).lower()
            run.error = f"{testsession_view.label(session)}: it was deleted while {phase}"
        return True
    run.document = found
    observer.updated(run)
    return testsession_view.is_finished(testsession_view.view(found))


async def _end(opened: ApiSession, readers: Nursery) -> None:
    await opened.env.clock.sleep(_LOGS_END_S)
    readers.cancel()
