"""Writes what is kept of a session besides its logs and artifacts: its record and its figures."""

import functools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from grange.api.kinds import NODE
from grange.api.kinds.testsession import SessionEvidenceStatus, TestSession
from grange.api.meta import Document
from grange.api.session_components import MAIN_CONTAINER
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.client.client import Client
from grange.controllers.testsession.artifact_gathering import ArtifactSource
from grange.controllers.testsession.component_pods import component_pods
from grange.controllers.testsession.container_log_reader import ContainerLogReader
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.evidence import driver_result, metric_series, session_record
from grange.evidence.driver_result import ParsedMetrics, ResultError
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError
from grange.evidence.evidence_paths import EvidenceKey, artifact_path, segment
from grange.evidence.metric_series import MetricSeries, SeriesError
from grange.evidence.session_record import KeptFile, SessionRecord

_TAIL = 16 * 1024  # bytes of a log in the record
_RESULT_LIMIT = 16 * 1024 * 1024
_RESULT_LOG = 1024 * 1024  # bytes of the driver's log in which its result is looked for
_MESSAGE = 1000  # characters of the status; the record has all

ReaderName = tuple[str, str]
"""UID of the pod, and the container."""


@dataclass(frozen=True, slots=True)
class EvidenceTools:
    """What a collector works with.

    Attributes:
        client: reads logs, pods, nodes and sessions.
        directory: keeps the evidence.
        series: keeps the figures.
        clock: time.
        log: the logger.
        offload: a single lane for what blocks.
        artifacts: where the artifacts of pods are; None where they are only uploaded.
    """

    client: Client
    directory: EvidenceDirectory
    series: MetricSeries
    clock: Clock
    log: Logger
    offload: Offload
    artifacts: ArtifactSource | None = None


class EvidenceRecorder:
    """Writes records.

    Args:
        tools: what it works with.
        readers: the logs that are followed; kept by the collector.
    """

    def __init__(
        self, tools: EvidenceTools, readers: Mapping[ReaderName, ContainerLogReader]
    ) -> None:
        self._tools, self._readers = tools, readers

    async def record(self, session: TestSession, notes: list[str], url: str) -> CollectedEvidence:
        """Write the record and the figures of a session's attempt.

        Args:
            session: whose.
            notes: what is not kept, in words.
            url: where the evidence is read.
        """
        record, offload = await self._recorded(session), self._tools.offload
        result, why = await offload.run(lambda: self._result(session))
        parsed = ParsedMetrics()
        if result is not None:
            parsed = driver_result.read_metrics(result, session.spec.evidence.metrics)
        elif session.spec.evidence.metrics or session.spec.evidence.result:
            notes = [*notes, why]
        notes = [*notes, *parsed.problems]
        record = msgspec.structs.replace(
            record,
            result=result,
            metrics=parsed.values,
            notes=tuple(notes),
            collected_attempts=record.attempts,
            evidence_url=url,
        )
        points = metric_series.points_of(record, self._tools.clock.now())
        failure = ""
        try:
            await offload.run(lambda: self._tools.directory.write_record(key_of(session), record))
            await offload.run(lambda: self._tools.series.append(points))
        except EvidenceError as error:
            failure = str(error)
            notes = [*notes, failure]
        except SeriesError as error:
            failure = str(error)
        message = _shortened("; ".join(notes))
        status = SessionEvidenceStatus(url=url, complete=not notes, message=message)
        return CollectedEvidence(status, parsed.values, failure)

    async def rewrite(self, session: TestSession) -> None:
        """Bring a record up to the session's end; its notes and result stay."""
        key, directory = key_of(session), self._tools.directory
        try:
            record = await self._recorded(session)
            old = await self._tools.offload.run(lambda: directory.read_record(directory.path(key)))
            if not self.readers_of(key.uid):  # another process had the logs
                record = msgspec.structs.replace(record, components=old.components)
            record = msgspec.structs.replace(
                record,
                notes=old.notes,
                result=old.result,
                collected_attempts=old.collected_attempts,
                evidence_url=old.evidence_url,
            )
            await self._tools.offload.run(lambda: directory.write_record(key, record))
        except (GrangeError, OSError) as error:
            self._tools.log.warning("record of a session is not up to date", why=str(error))

    async def mark(self, sessions: Iterable[TestSession]) -> None:
        """Note in the series which figures of sessions are regressions or new levels."""
        records = [session_record.record_of(msgspec.to_builtins(session)) for session in sessions]
        try:
            for record in records:
                await self._tools.offload.run(functools.partial(self._tools.series.mark, record))
        except SeriesError as error:
            self._tools.log.warning("figures are not marked", why=str(error))

    def readers_of(self, uid: str) -> dict[ReaderName, ContainerLogReader]:
        """The logs of a session."""
        return {
            name: reader
            for name, reader in self._readers.items()
            if reader.target.session.uid == uid
        }

    def _result(self, session: TestSession) -> tuple[Document | None, str]:
        """The JSON that the driver reported, or why there is none. Blocks."""
        driver = next((pod for pod in component_pods(session) if pod.is_driver), None)
        if driver is None:
            return None, "there is no driver"
        directory = self._tools.directory
        root, attempt = directory.path(key_of(session)), session.status.attempt
        if name := session.spec.evidence.result:
            where = f"artifact {name!r} of {driver.member}"
            try:
                path = f"artifacts/{attempt}/{segment(driver.member)}/{artifact_path(name)}"
                with directory.open_file(root, path) as file:
                    raw = file.read(_RESULT_LIMIT + 1)
                if len(raw) > _RESULT_LIMIT:
                    raise ResultError(f"cannot read {where}: it exceeds {_RESULT_LIMIT} bytes")
                return driver_result.parse(raw, where), ""
            except GrangeError as error:
                return None, str(error)
        reader = self._main_reader(session, driver.name)
        log = b"" if reader is None or reader.file is None else reader.file.tail(_RESULT_LOG)
        found = driver_result.last_object(log)
        return found, "" if found else f"no line of the log of {driver.member} is a JSON object"

    async def _recorded(self, session: TestSession) -> SessionRecord:
        """The record of a session, with the files that are there."""
        nodes: list[Document] = []
        for name in sorted({item.node for item in session.status.components if item.node}):
            with suppress(ApiError):  # a machine that is gone has no facts
                nodes.append(await self._tools.client.get_document(NODE, name))
        record = session_record.record_of(msgspec.to_builtins(session), nodes)
        return await self._tools.offload.run(lambda: self._with_files(session, record))

    def _with_files(self, session: TestSession, record: SessionRecord) -> SessionRecord:
        """Add logs and artifacts. Blocks."""
        attempt, directory = session.status.attempt, self._tools.directory
        root = directory.path(key_of(session))
        logs: dict[str, list[KeptFile]] = {}
        tails: dict[str, str] = {}
        for reader in self.readers_of(session.metadata.uid).values():
            if reader.target.attempt != attempt or reader.file is None:
                continue
            file, pod = reader.file, reader.target.pod.name
            if not file.size:
                continue
            path = file.path.relative_to(root).as_posix()
            cut = f"{file.dropped} bytes in its middle are not kept" if file.dropped else ""
            logs.setdefault(pod, []).append(KeptFile(path, file.size, cut))
            if reader is self._main_reader(session, pod):
                tails[pod] = file.tail(_TAIL).decode(errors="replace")
        store = directory.artifact_store(key_of(session))
        artifacts = {pod.name: store.listed(attempt, pod.member) for pod in component_pods(session)}
        return session_record.with_files(record, logs, artifacts, tails)

    def _main_reader(self, session: TestSession, pod: str) -> ContainerLogReader | None:
        """The log of a pod's main container: by its name, else the first that is followed."""
        found = [
            reader
            for reader in self.readers_of(session.metadata.uid).values()
            if reader.target.pod.name == pod and reader.target.attempt == session.status.attempt
        ]
        main = [reader for reader in found if reader.target.container == MAIN_CONTAINER]
        return next(iter(main or found), None)


def key_of(session: TestSession) -> EvidenceKey:
    """Where a session's evidence is."""
    meta = session.metadata
    return EvidenceKey(meta.namespace, meta.name, meta.uid)


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"
