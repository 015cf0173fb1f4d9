"""Logs of sessions as files: ``DIR/<session>/logs/<pod>/<container>.log``."""

from collections.abc import Sequence
from pathlib import Path

from grange.base.errors import GrangeError
from grange.cli import terminal
from grange.cli.testruns.component_logs import ContainerLog
from grange.cli.testruns.tracked_run import SessionRun
from grange.evidence import session_record


class ArtifactsError(GrangeError):
    """The directory of artifacts cannot be used; the message names it and the cause."""


class RunLogFiles:
    """The files of all sessions of a run.

    A disk that is full must not end the tests: what cannot be written is reported once on standard
    error, and the run goes on.

    Args:
        directory: of all sessions; None: nothing is written.

    Raises:
        ArtifactsError: the directory cannot be made.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._is_broken = False
        if directory is not None:
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArtifactsError(f"--artifacts {directory}: {error.strerror}") from error

    def write(self, run: SessionRun, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """Append lines to the file of a container."""
        if self.directory is None:
            return
        root = self.directory / _plain(run.name)
        later = f".attempt-{source.attempt}" if source.attempt else ""
        name = f"{source.container}{later}.log"
        files = run.files.setdefault(source.pod, {})
        is_first = name not in files
        path = files.setdefault(name, root / "logs" / _plain(source.pod) / _plain(name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb" if is_first else "ab") as file:
                file.writelines(lines)
        except OSError as error:
            self._report(path, error)

    def artifact(self, run: SessionRun, path: str, content: bytes) -> None:
        """Write an artifact that the server has kept, under the same path."""
        if self.directory is None:
            return
        target = self.directory.joinpath(_plain(run.name), *map(_plain, path.split("/")))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        except OSError as error:
            self._report(target, error)

    def finish(self, run: SessionRun) -> None:
        """Write the record of a session that is over."""
        if self.directory is None:
            return
        path = self.directory / _plain(run.name) / "session.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(session_record.encode(run.record(path.parent)))
        except OSError as error:
            self._report(path, error)

    def _report(self, path: Path, error: OSError) -> None:
        if not self._is_broken:
            terminal.echo(f"{path}: not written: {error.strerror}", err=True)
        self._is_broken = True


def _plain(name: str) -> str:
    """A plain name: what a server sends may not lead out of the directory."""
    return name.replace("/", "_").lstrip(".") or "_"
