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
        logs = _Logs(run, observer, files)
        await _follow(opened, run, created, observer, logs)
        await _take_evidence(opened, run, logs, files)
    except GrangeError as error:
        run.error = str(error)
    run.is_over = True
    files.finish(run)
    observer.updated(run)


class _Logs:
    """Takes the lines of a run's containers."""

    def __init__(self, run: SessionRun, observer: RunObserver, files: RunLogFiles) -> None:
        self._run, self._observer, self._files = run, observer, files
        self._read: set[tuple[str, str, int]] = set()

    def keep(self, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """The sink."""
        self._read.add(_place(source))
        self._run.keep(source, lines)
        self._files.write(self._run, source, lines)
        self._observer.output(self._run, source, lines)

    def has(self, source: ContainerLog) -> bool:
        """Whether lines of the container's run were read."""
        return _place(source) in self._read

    @property
    def pods(self) -> set[str]:
        """Those of which lines were read."""
        return {pod for pod, _, _ in self._read}


def _place(source: ContainerLog) -> tuple[str, str, int]:
    return source.pod, source.container, source.attempt


async def _follow(
    opened: ApiSession,
    run: SessionRun,
    created: Document,
    observer: RunObserver,
    logs: _Logs,
) -> None:
    def see(found: Document | None) -> bool:
        if found is None:
            _lose(run)
            return True
        run.document = found
        observer.updated(run)
        return testsession_view.is_finished(testsession_view.view(found))

    await following.follow(opened, created, ComponentLogs(opened, created, logs.keep), see)


def _lose(run: SessionRun) -> None:
    """Note that the session is gone, unless its verdict is known."""
    session = run.session
    if session is not None and not testsession_view.verdict(session):
        phase = testsession_view.phase(session).lower()
        run.error = f"{testsession_view.label(session)}: it was deleted while {phase}"


async def _take_evidence(
    opened: ApiSession, run: SessionRun, logs: _Logs, files: RunLogFiles
) -> None:
    """Take the artifacts that the server has kept, and logs of pods that went before they were read.

    What fails changes no verdict.
    """
    if run.document is None:
        return
    status = testsession_view.view(run.document).status
    missing = {item.pod for item in status.components} - logs.pods
    if not status.evidence.url or not (missing or files.directory):
        return
    try:
        evidence = KeptEvidence(opened, run.document)
        try:
            for source, path in await evidence.logs():
                if not logs.has(source):
                    logs.keep(source, await evidence.lines(path))
            if files.directory is not None:
                for kept in await evidence.files():
                    if kept.path.startswith(_ARTIFACTS):
                        files.artifact(run, kept.path, await evidence.read(kept.path))
        finally:
            await evidence.close()
    except GrangeError as error:
        terminal.echo(f"{run.name}: evidence is not copied: {error}", err=True)
