"""One session of a run: what is known of it, from its plan to its outcome."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from grange.api import codec
from grange.api.kinds.testsession import CANCELED, ERROR, PASSED, TEST_FAILED, TestSession
from grange.api.meta import Document
from grange.cli import testsession_view
from grange.cli.testruns.component_logs import ContainerLog
from grange.cli.testruns.run_plan import PlannedSession
from grange.evidence import regression, session_record
from grange.evidence.regression import RegressionCheck
from grange.evidence.session_record import KeptFile, SessionRecord

TAIL = 20
"""Last lines of each component that are shown when it failed."""

_TAIL_LINES = 200  # that reports get


@dataclass(slots=True)
class SessionRun:
    """A session as this process sees it.

    Attributes:
        planned: what to run.
        document: as it was seen last; None before its creation.
        error: why it was not created or not seen to its end; empty where it was.
        skipped: why it was not started, or ended before its time by this process.
        is_started: its creation was requested.
        is_cancelled: the server has accepted its cancellation.
        is_over: nothing more happens to it here.
        checks: its figures against those of earlier runs, by metric.
        fails_on_regression: a figure that is worse fails a session that passed.
        tails: last lines by component.
        files: logs that were written, by pod.
    """

    planned: PlannedSession
    document: Document | None = None
    error: str = ""
    skipped: str = ""
    is_started: bool = False
    is_cancelled: bool = False
    is_over: bool = False
    checks: Mapping[str, RegressionCheck] = field(default_factory=dict)
    fails_on_regression: bool = False
    tails: dict[str, deque[bytes]] = field(default_factory=dict)
    files: dict[str, dict[str, Path]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.planned.name

    @property
    def session(self) -> TestSession | None:
        """The typed view of the document."""
        return None if self.document is None else testsession_view.view(self.document)

    @property
    def is_active(self) -> bool:
        """Whether it was created and has not ended."""
        return self.document is not None and not self.is_over

    @property
    def exit_code(self) -> int:
        """Of this session alone; what this process ended or never started does not count."""
        session = self.session
        if self.error:
            return testsession_view.INFRASTRUCTURE
        if session is None:
            return 0 if self.skipped else testsession_view.INFRASTRUCTURE
        if self.skipped and testsession_view.verdict(session) == CANCELED:
            return 0
        return testsession_view.EXIT_CODES.get(self.verdict, testsession_view.INFRASTRUCTURE)

    @property
    def verdict(self) -> str:
        """For people and for reports."""
        session = self.session
        if self.error:
            return ERROR
        if session is None:
            return CANCELED if self.skipped else ""
        found = testsession_view.verdict(session)
        return TEST_FAILED if found == PASSED and self.regressions else found

    @property
    def regressions(self) -> list[str]:
        """The figures that are worse than before, where that fails the session."""
        if not self.fails_on_regression:
            return []
        return [f"{name}: {self.checks[name].message}" for name in self.worse]

    @property
    def worse(self) -> list[str]:
        """The names of the figures that are worse than before."""
        return [name for name, one in self.checks.items() if one.verdict == regression.WORSE]

    def keep(self, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """Keep the last of the lines that a container wrote."""
        self.tails.setdefault(source.label, deque(maxlen=_TAIL_LINES)).extend(lines)

    def tail(self, component: str, count: int = TAIL) -> list[str]:
        """The last lines of a component: of its main container where it has several."""
        found = self.tails.get(component)
        if found is None:
            others = (label for label in self.tails if label.startswith(f"{component}/"))
            main = f"{component}/main"
            label = main if main in self.tails else next(others, "")
            found = self.tails.get(label) or deque()
        texts = [line.decode(errors="replace").rstrip("\r\n") for line in found]
        return texts[-count:]

    def record(self, directory: Path | None = None) -> SessionRecord:
        """For reports.

        Args:
            directory: what paths of files are relative to.
        """
        if self.document is None:
            meta = self.planned.document["metadata"]
            return SessionRecord(
                namespace=str(meta.get("namespace") or ""),
                name=self.name,
                test_name=self.planned.test,
                phase="Cancelled" if self.skipped else "Errored",
                verdict=self.verdict or ERROR,
                reason="Skipped" if self.skipped else "NotCreated",
                message=self.error or self.skipped,
                properties=self._properties(),
            )
        record = session_record.record_of(self.document)
        logs = {
            pod: [_kept(path, directory) for path in files.values()]
            for pod, files in self.files.items()
        }
        tails = {
            item.pod: "\n".join(self.tail(item.name, _TAIL_LINES)) for item in record.components
        }
        record = session_record.with_files(record, logs, {}, tails)
        changes: Document = {"test_name": self.planned.test, "properties": self._properties()}
        if self.regressions:
            text = "; ".join(self.regressions)
            changes |= {"verdict": self.verdict, "reason": "Regression", "message": text}
        if self.error:
            changes |= {"verdict": ERROR, "reason": "NotSeenToItsEnd", "message": self.error}
        return msgspec.structs.replace(record, **changes)

    def _properties(self) -> dict[str, str]:
        found = self.planned.parameters.items()
        return {
            f"parameter.{key}": value
            if isinstance(value, str)
            else codec.encode_any(value).decode()
            for key, value in found
        }


def _kept(path: Path, directory: Path | None) -> KeptFile:
    shown = path.relative_to(directory) if directory is not None else path
    return KeptFile(path=shown.as_posix(), size=path.stat().st_size if path.exists() else 0)
