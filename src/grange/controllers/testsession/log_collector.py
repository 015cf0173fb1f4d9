"""Collects the evidence of sessions: logs while they are written, the rest at the end.

What goes wrong here never changes a verdict: it is a message in the session's status and record.
"""

import functools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from grange.api.kinds import NODE, POD, TESTSESSION
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    ATTEMPT_LABEL,
    FINAL_PHASES,
    SESSION_UID_LABEL,
    SessionEvidenceStatus,
    TestSession,
)
from grange.api.meta import Document
from grange.api.session_components import MAIN_CONTAINER
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.base.tasks import Child, Nursery
from grange.client.client import Client
from grange.controllers.testsession import artifact_gathering
from grange.controllers.testsession.artifact_gathering import ArtifactSource
from grange.controllers.testsession.component_pods import ComponentPod, component_pods
from grange.controllers.testsession.container_log_reader import (
    ContainerLogReader,
    LogTarget,
    status_of,
)
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.evidence import driver_result, metric_series, session_record
from grange.evidence.artifact_store import ArtifactError
from grange.evidence.driver_result import ParsedMetrics, ResultError
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError
from grange.evidence.evidence_paths import EvidenceKey, artifact_path, segment
from grange.evidence.metric_series import MetricSeries, SeriesError
from grange.evidence.session_record import KeptFile, SessionRecord

_TAIL = 16 * 1024  # bytes of a log in the record
_RESULT_LIMIT = 16 * 1024 * 1024
_RESULT_LOG = 1024 * 1024  # bytes of the driver's log in which its result is looked for
_RESERVE_S = 2.0  # of the budget, for what follows the logs
_SETTLE_S = 0.3  # for what containers that still run have written
_DRAIN_S = 10.0  # after the end of a session, until its logs are ended
_PRUNE_S = 300.0
_FIGURES_KEPT = timedelta(days=400)  # a year, and the month that it is compared with
_ReaderName = tuple[str, str]  # UID of the pod, and the container
_MESSAGE = 1000  # characters of the status; the record has all


class ServiceAccess(Protocol):
    """How the session service is reached."""

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables by which the components of a session's attempt reach it."""

    def evidence_url(self, session: TestSession) -> str:
        """Where the evidence of a session is read."""

    def forget(self, uid: str) -> None:
        """The session is gone, or has ended."""


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


class LogCollector:
    """Implements ``EvidenceCollector``.

    Args:
        tools: what it works with.
        service: gives access to what is kept; None where there is no session service.
    """

    def __init__(self, tools: EvidenceTools, service: ServiceAccess | None = None) -> None:
        self._tools = tools
        self._service = service
        self._nursery: Nursery | None = None
        self._readers: dict[_ReaderName, ContainerLogReader] = {}
        self._running: dict[_ReaderName, Child[None]] = {}

    async def run(self) -> None:
        """Follow logs and delete what is too old; returns only by cancellation."""
        try:
            async with Nursery("evidence") as nursery:
                self._nursery = nursery
                for name in self._readers:
                    self._follow(nursery, name)
                while True:
                    await self._prune()
                    await self._tools.clock.sleep(_PRUNE_S)
        finally:
            self._nursery = None
            self._readers.clear()
            self._running.clear()

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables of the session's containers."""
        return {} if self._service is None else self._service.environment(session)

    def start(self, session: TestSession, pod: Pod) -> None:
        """Follow the logs of a pod's containers, each from when it starts."""
        attempt = int(pod.metadata.labels.get(ATTEMPT_LABEL, session.status.attempt))
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            name = (pod.metadata.uid, container.name)
            if name in self._readers:
                continue
            target = LogTarget(key_of(session), attempt, pod.key, pod.metadata.uid, container.name)
            reader = ContainerLogReader(
                target,
                client=self._tools.client,
                directory=self._tools.directory,
                clock=self._tools.clock,
                log=self._tools.log,
                offload=self._tools.offload,
            )
            self._readers[name] = reader
            if self._nursery is not None:
                self._follow(self._nursery, name)

    def _follow(self, nursery: Nursery, name: _ReaderName) -> None:
        self._running[name] = nursery.start(self._readers[name].run(), name="log")

    def forget(self, session: TestSession) -> None:
        """Write the record as the session ended, and end its readers when its logs are complete."""
        if self._service is not None:
            self._service.forget(session.metadata.uid)
        if self._nursery is not None and self._readers_of(session.metadata.uid):
            self._nursery.start(self._end(session), name="end of evidence")

    async def collect(self, session: TestSession, deadline: datetime) -> CollectedEvidence:
        """Complete the evidence of the session's attempt.

        Raises:
            GrangeError: it could not be kept.
        """
        clock = self._tools.clock
        notes: list[str] = []
        try:
            found = await self._tools.client.list(
                POD,
                session.metadata.namespace,
                labels=f"{SESSION_UID_LABEL}={session.metadata.uid}",
            )
            pods = {pod.metadata.name: pod for pod in found.items if _is_of(pod, session)}
        except ApiError as error:
            pods = {}
            notes.append(f"the pods cannot be listed: {error.message}")
        for pod in pods.values():
            self.start(session, pod)
        budget = (deadline - clock.now()).total_seconds()
        budget -= min(_RESERVE_S, budget / 2)
        try:
            async with clock.timeout(max(0.0, budget)):
                for member in component_pods(session):
                    if member.name in pods:
                        notes += await self._gather(session, member, pods[member.name])
                await self._complete(pods.values())
        except TimeoutError:
            notes.append("the evidence was not complete when its time was over")
        notes += [reader.problem for reader in self._readers_of(session.metadata.uid).values()]
        return await self._record(session, [note for note in notes if note])

    async def _gather(self, session: TestSession, member: ComponentPod, pod: Pod) -> list[str]:
        """Copy the artifacts of a pod; what is not kept, in words."""
        source, offload = self._tools.artifacts, self._tools.offload
        place = None if source is None else source.directory(pod.metadata.uid)
        store = self._tools.directory.artifact_store(key_of(session))
        attempt, spec = session.status.attempt, session.spec.evidence
        if place is None:
            kept = await offload.run(lambda: store.listed(attempt, member.member))
            if kept or not member.spec.artifacts:
                return []
            return [
                f"{member.member}: its artifacts are on another machine; it must upload them to "
                "the session service"
            ]
        found = await offload.run(lambda: artifact_gathering.found_in(place, member, spec.result))
        notes = [*artifact_gathering.missing(member, found)]
        limit = spec.max_artifact_bytes
        for file in found:
            copied = functools.partial(
                artifact_gathering.copy, store, attempt, member, place, file, limit
            )
            try:
                notes += [await offload.run(copied)]  # one at a time: others need the lane, too
            except ArtifactError as error:
                return [*notes, f"{member.member}: {error}"]  # nor will the next one be written
        return notes

    async def _complete(self, pods: Iterable[Pod]) -> None:
        """Wait for the logs of containers that have ended; others go on until they end."""
        runs_on = False
        for pod in pods:
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                reader = self._readers.get((pod.metadata.uid, container.name))
                if reader is None:
                    continue
                if status_of(pod, container.name).state.terminated is not None:
                    if self._nursery is not None:
                        await reader.ended.wait()
                else:
                    runs_on = True
        if runs_on:
            await self._tools.clock.sleep(_SETTLE_S)

    async def _record(self, session: TestSession, notes: list[str]) -> CollectedEvidence:
        record, offload = await self._recorded(session), self._tools.offload
        result, why = await offload.run(lambda: self._result(session))
        parsed = ParsedMetrics()
        if result is not None:
            parsed = driver_result.read_metrics(result, session.spec.evidence.metrics)
        elif session.spec.evidence.metrics or session.spec.evidence.result:
            notes = [*notes, why]
        notes = [*notes, *parsed.problems]
        record = msgspec.structs.replace(
            record, result=result, metrics=parsed.values, notes=tuple(notes)
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
        url = "" if self._service is None else self._service.evidence_url(session)
        message = _shortened("; ".join(notes))
        status = SessionEvidenceStatus(url=url, complete=not notes, message=message)
        return CollectedEvidence(status, parsed.values, failure)

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
        for reader in self._readers_of(session.metadata.uid).values():
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
            for reader in self._readers_of(session.metadata.uid).values()
            if reader.target.pod.name == pod and reader.target.attempt == session.status.attempt
        ]
        main = [reader for reader in found if reader.target.container == MAIN_CONTAINER]
        return next(iter(main or found), None)

    def _readers_of(self, uid: str) -> dict[_ReaderName, ContainerLogReader]:
        return {
            name: reader
            for name, reader in self._readers.items()
            if reader.target.session.uid == uid
        }

    async def _end(self, session: TestSession) -> None:
        """Let the readers of a session end, and write its record as it is in the end."""
        readers = self._readers_of(session.metadata.uid)
        try:
            async with self._tools.clock.timeout(_DRAIN_S):
                for reader in readers.values():
                    await reader.ended.wait()
        except TimeoutError:
            for name in readers:
                self._running[name].cancel()
        if session.status.phase in FINAL_PHASES:
            await self._rewrite(session)
        for name in readers:
            self._readers.pop(name, None)
            self._running.pop(name, None)

    async def _rewrite(self, session: TestSession) -> None:
        """Bring a record up to the session's end; its notes and result stay."""
        key, directory = key_of(session), self._tools.directory
        try:
            record = await self._recorded(session)
            old = await self._tools.offload.run(lambda: directory.read_record(directory.path(key)))
            if not self._readers_of(key.uid):  # another process had the logs
                record = msgspec.structs.replace(record, components=old.components)
            record = msgspec.structs.replace(record, notes=old.notes, result=old.result)
            await self._tools.offload.run(lambda: directory.write_record(key, record))
        except (GrangeError, OSError) as error:
            self._tools.log.warning("record of a session is not up to date", why=str(error))

    async def _prune(self) -> None:
        """Delete evidence whose time is over, and complete the records of sessions that ended."""
        try:
            listed = (await self._tools.client.list(TESTSESSION)).items
        except ApiError as error:
            self._tools.log.info("evidence is not pruned", why=error.message)
            return
        active = {s.metadata.uid for s in listed if s.status.phase not in FINAL_PHASES}
        directory, offload = self._tools.directory, self._tools.offload
        now = self._tools.clock.now()
        open_records = await offload.run(
            lambda: {record.uid for record in directory.records() if not record.is_finished}
        )
        for session in listed:
            if session.metadata.uid in open_records - active:
                await self._rewrite(session)
        await offload.run(lambda: directory.prune(now, active))
        try:
            await offload.run(lambda: self._tools.series.prune(now - _FIGURES_KEPT))
        except SeriesError as error:
            self._tools.log.warning("old figures are not deleted", why=str(error))


def key_of(session: TestSession) -> EvidenceKey:
    """Where a session's evidence is."""
    meta = session.metadata
    return EvidenceKey(meta.namespace, meta.name, meta.uid)


def _is_of(pod: Pod, session: TestSession) -> bool:
    return pod.metadata.labels.get(ATTEMPT_LABEL) == str(session.status.attempt)


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"
