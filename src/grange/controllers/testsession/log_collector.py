"""Collects the evidence of sessions: logs while they are written, artifacts and the record at the end.

What goes wrong here never changes a verdict: it is a message in the session's status and record.
"""

import functools
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from grange.api.kinds import POD, TESTSESSION
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    ACCEPTED_ANNOTATION,
    ATTEMPT_LABEL,
    FINAL_PHASES,
    REGRESSED_ANNOTATION,
    SESSION_UID_LABEL,
    TestSession,
)
from grange.api.status import ApiError
from grange.base.tasks import Child, Nursery
from grange.controllers.testsession import artifact_gathering
from grange.controllers.testsession.component_pods import ComponentPod, component_pods
from grange.controllers.testsession.container_log_reader import (
    ContainerLogReader,
    LogTarget,
    status_of,
)
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.controllers.testsession.evidence_recorder import (
    EvidenceRecorder,
    EvidenceTools,
    ReaderName,
    key_of,
)
from grange.evidence.artifact_store import ArtifactError
from grange.evidence.metric_series import SeriesError

_RESERVE_S = 2.0  # of the budget, for what follows the logs
_DRAIN_S = 10.0  # after the end of a session, until its logs are ended
_PRUNE_S = 300.0
_FIGURES_KEPT = timedelta(days=400)  # a year, and the month that it is compared with


class ServiceAccess(Protocol):
    """How the session service is reached."""

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables by which the components of a session's attempt reach it."""

    def evidence_url(self, session: TestSession) -> str:
        """Where the evidence of a session is read."""

    def forget(self, uid: str) -> None:
        """The session is gone, or has ended."""


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
        self._readers: dict[ReaderName, ContainerLogReader] = {}
        self._recorder = EvidenceRecorder(tools, self._readers)
        self._running: dict[ReaderName, Child[None]] = {}

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

    def _follow(self, nursery: Nursery, name: ReaderName) -> None:
        self._running[name] = nursery.start(self._readers[name].run(), name="log")

    def forget(self, session: TestSession) -> None:
        """Write the record as the session ended, and end its readers when its logs are complete."""
        if self._service is not None:
            self._service.forget(session.metadata.uid)
        if self._nursery is not None and self._recorder.readers_of(session.metadata.uid):
            self._nursery.start(self._end(session), name="end of evidence")
        if self._nursery is not None and _is_marked(session):
            self._nursery.start(self._recorder.mark([session]), name="marks of figures")

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
        notes += [
            reader.problem for reader in self._recorder.readers_of(session.metadata.uid).values()
        ]
        url = "" if self._service is None else self._service.evidence_url(session)
        return await self._recorder.record(session, [note for note in notes if note], url)

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
        """Wait for what containers have written: all of it, or so far where they still run."""
        if self._nursery is None:
            return
        for pod in pods:
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                reader = self._readers.get((pod.metadata.uid, container.name))
                if reader is None:
                    continue
                if status_of(pod, container.name).state.terminated is not None:
                    await reader.ended.wait()
                else:
                    await reader.catch_up()

    async def _end(self, session: TestSession) -> None:
        """Let the readers of a session end, and write its record as it is in the end."""
        readers = self._recorder.readers_of(session.metadata.uid)
        try:
            async with self._tools.clock.timeout(_DRAIN_S):
                for reader in readers.values():
                    await reader.ended.wait()
        except TimeoutError:
            for name in readers:
                self._running[name].cancel()
        if session.status.phase in FINAL_PHASES:
            await self._recorder.rewrite(session)
        for name in readers:
            self._readers.pop(name, None)
            self._running.pop(name, None)

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
                await self._recorder.rewrite(session)
        await self._recorder.mark(filter(_is_marked, listed))
        await offload.run(lambda: directory.prune(now, active))
        try:
            await offload.run(lambda: self._tools.series.prune(now - _FIGURES_KEPT))
        except SeriesError as error:
            self._tools.log.warning("old figures are not deleted", why=str(error))


def _is_marked(session: TestSession) -> bool:
    annotations = session.metadata.annotations
    return REGRESSED_ANNOTATION in annotations or ACCEPTED_ANNOTATION in annotations


def _is_of(pod: Pod, session: TestSession) -> bool:
    return pod.metadata.labels.get(ATTEMPT_LABEL) == str(session.status.attempt)
