"""What the page about a session shows: its record and its logs."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from grange.api.kinds import NODE
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.errors import GrangeError
from grange.cli import testsession_lookup
from grange.cli.session import ApiSession
from grange.cli.testruns.component_logs import ComponentLogs, ContainerLog
from grange.cli.testruns.kept_evidence import KeptEvidence, NoEvidence
from grange.evidence import session_record
from grange.evidence.session_record import KeptFile, RecordError, SessionRecord


class ReportInputError(GrangeError):
    """Evidence cannot be read; the message names the file and the cause."""


class ReportInput:
    """What is known of a session.

    Attributes:
        record: its record.
        logs: texts of logs, by the path of the file in the record.
    """

    def __init__(self, record: SessionRecord, logs: dict[str, str]) -> None:
        self.record = record
        self.logs = logs


def from_directory(directory: Path) -> ReportInput:
    """The evidence that ``grange test run --artifacts`` wrote for one session.

    Raises:
        ReportInputError: it cannot be read.
        RecordError: the record is damaged.
    """
    try:
        record = session_record.decode((directory / "session.json").read_bytes())
        logs = {
            kept.path: (directory / kept.path).read_text(errors="replace")
            for component in record.components
            for kept in component.logs
            if _is_within(directory, kept.path)
        }
    except OSError as error:
        raise ReportInputError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return ReportInput(record, logs)


async def from_cluster(opened: ApiSession, session: Document) -> ReportInput:
    """What the session service has kept of a session; without one, the logs of pods that are there."""
    with suppress(NoEvidence, ApiError, RecordError):  # what the cluster itself has is shown then
        return await _kept(opened, session)
    try:
        nodes: Sequence[Document] = await opened.listed(NODE, "")
    except ApiError:  # the user may not read nodes; the rest is worth showing
        nodes = ()
    record = session_record.record_of(session, nodes)
    texts: dict[str, dict[str, list[bytes]]] = {}

    def keep(source: ContainerLog, lines: Sequence[bytes]) -> None:
        files = texts.setdefault(source.pod, {})
        files.setdefault(f"logs/{source.pod}/{source.container}.log", []).extend(lines)

    logs = ComponentLogs(opened, session, keep)
    await logs.print_once(await testsession_lookup.pods_of(opened, session))
    kept = {
        pod: [KeptFile(path=path, size=sum(map(len, lines))) for path, lines in files.items()]
        for pod, files in texts.items()
    }
    found = {
        path: b"".join(lines).decode(errors="replace")
        for files in texts.values()
        for path, lines in files.items()
    }
    return ReportInput(session_record.with_files(record, kept, {}, {}), found)


async def _kept(opened: ApiSession, session: Document) -> ReportInput:
    evidence = KeptEvidence(opened, session)
    try:
        record = session_record.decode(await evidence.read("session.json"))
        paths = {kept.path for item in record.components for kept in item.logs}
        texts = {path: (await evidence.read(path)).decode(errors="replace") for path in paths}
        ended = session_record.with_end(record, session_record.record_of(session))
        return ReportInput(ended, texts)
    finally:
        await evidence.close()


def _is_within(directory: Path, path: str) -> bool:
    """Whether a path of a record stays in its directory: records come from elsewhere, too."""
    root = directory.resolve()
    return (root / path).resolve().is_relative_to(root) and (root / path).is_file()
