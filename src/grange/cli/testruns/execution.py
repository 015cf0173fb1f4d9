"""Runs one planned session: creates it, follows its logs and waits for its end."""

from collections.abc import Sequence
from typing import Protocol

from grange.api.meta import Document
from grange.base.errors import GrangeError
from grange.cli import terminal, testsession_view
from grange.cli.session import ApiSession
from grange.cli.testruns import following, session_writes
from grange.cli.testruns.component_logs import ComponentLogs, ContainerLog
from grange.cli.testruns.kept_evidence import KeptEvidence
from grange.cli.testruns.log_files import RunLogFiles
from grange.cli.testruns.tracked_run import SessionRun

_ARTIFACTS = "artifacts/"


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
    run.is_started = True
    try:
        created = run.document = await session_writes.create(opened, run.planned.document)
        if run.skipped:  # while it was being created
            await session_writes.cancel(opened, created, session_writes.CANCEL_COLLECT)
            run.is_cancelled = True
        observer.updated(run)
        await _follow(opened, run, created, observer, files)
    except GrangeError as error:
        run.error = str(error)
    run.is_over = True
    if files.directory is not None and run.document is not None:
        await _fetch_artifacts(opened, run, run.document, files)
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

    def see(found: Document | None) -> bool:
        if found is None:
            _lose(run)
            return True
        run.document = found
        observer.updated(run)
        return testsession_view.is_finished(testsession_view.view(found))

    await following.follow(opened, created, ComponentLogs(opened, created, keep), see)


def _lose(run: SessionRun) -> None:
    """Note that the session is gone, unless its verdict is known."""
    session = run.session
    if session is not None and not testsession_view.verdict(session):
        phase = testsession_view.phase(session).lower()
        run.error = f"{testsession_view.label(session)}: it was deleted while {phase}"


async def _fetch_artifacts(
    opened: ApiSession, run: SessionRun, session: Document, files: RunLogFiles
) -> None:
    """Copy the artifacts that the server has kept; what fails changes no verdict."""
    if not testsession_view.view(session).status.evidence.url:
        return
    try:
        evidence = KeptEvidence(opened, session)
        try:
            for kept in await evidence.files():
                if kept.path.startswith(_ARTIFACTS):
                    files.artifact(run, kept.path, await evidence.read(kept.path))
        finally:
            await evidence.close()
    except GrangeError as error:
        terminal.echo(f"{run.name}: artifacts are not copied: {error}", err=True)
