"""The record of a session: what is kept of it when its object and its pods are gone; pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.machinelease import POOL_LABEL
from grange.api.kinds.testsession import (
    ACCEPTED_ANNOTATION,
    FINAL_PHASES,
    QUEUED,
    REGRESSED_ANNOTATION,
    SessionEvent,
    SessionMetricResult,
    TestSession,
    TestSessionSpec,
)
from grange.api.meta import Document, ObjectMeta, View
from grange.api.session_components import MAIN_CONTAINER
from grange.base.errors import GrangeError

DRIVER = "driver"
FORMAT = 1
"""Of records as JSON; a reader refuses a higher one."""


class RecordError(GrangeError):
    """A record cannot be read; the message names the cause."""


class NodeFacts(View, frozen=True):
    """What kind of machine a component ran on."""

    name: str
    pool: str = ""
    kernel: str = ""
    os_image: str = ""
    architecture: str = ""
    cpu: str = ""
    memory: str = ""


class KeptFile(View, frozen=True):
    """A log or an artifact that is kept.

    Attributes:
        path: relative to the directory of the session's evidence, with ``/``.
        size: bytes.
        note: why it is not whole; empty where it is.
    """

    path: str
    size: int = 0
    note: str = ""


class ComponentRecord(View, frozen=True):
    """One pod of the session.

    Attributes:
        name: of the component, with an index where it has several pods.
        logs: one file for each of its containers.
        env: variables of its main container whose values are in the session's spec; those that come
            from elsewhere (``valueFrom``) are left out, as they may be secret.
        tail: the end of the log of its main container.
    """

    name: str
    role: str = ""
    pod: str = ""
    node: str = ""
    address: str = ""
    image: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    health: str = ""
    message: str = ""
    exit_code: int | None = None
    started_time: str | None = None
    finished_time: str | None = None
    logs: tuple[KeptFile, ...] = ()
    artifacts: tuple[KeptFile, ...] = ()
    tail: str = ""

    @property
    def is_failed(self) -> bool:
        """Whether it ended in failure."""
        return self.health == "Failed" or self.exit_code not in (None, 0)


class SessionRecord(View, frozen=True):
    """One session.

    Attributes:
        test_name: by which runs of one test are known.
        attempts: how many there were.
        collected_attempts: how many there were when the evidence was collected.
        evidence_url: where the evidence was read then, as in the status of the session.
        message: why it ended so.
        thresholds: relative changes that count as regressions, by metric.
        regressed_metrics: figures that were worse in the run, which failed for them.
        accepted_metrics: figures that are a new level, with which later runs are compared.
        notes: what is missing from the evidence, and why.
        retention_seconds: of the evidence, from the end.
        properties: further facts for reports.
        result: the JSON that the driver reported.
    """

    format: int = FORMAT
    namespace: str = ""
    name: str = ""
    uid: str = ""
    test_name: str = ""
    phase: str = ""
    verdict: str = ""
    reason: str = ""
    message: str = ""
    attempts: int = 1
    collected_attempts: int = 0
    evidence_url: str = ""
    creation_time: str | None = None
    start_time: str | None = None
    run_time: str | None = None
    completion_time: str | None = None
    retention_seconds: int = 0
    components: tuple[ComponentRecord, ...] = ()
    events: tuple[SessionEvent, ...] = ()
    metrics: tuple[SessionMetricResult, ...] = ()
    thresholds: dict[str, float] = msgspec.field(default_factory=dict)
    regressed_metrics: tuple[str, ...] = ()
    accepted_metrics: tuple[str, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    notes: tuple[str, ...] = ()
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    scenario: Any = None
    result: Any = None

    @property
    def is_finished(self) -> bool:
        """Whether the session reached a final phase."""
        return self.phase in FINAL_PHASES

    @property
    def has_last_attempt(self) -> bool:
        """Whether it was written with the evidence of the last attempt.

        Another process may have collected that of later ones.
        """
        return self.collected_attempts == self.attempts

    @property
    def driver(self) -> ComponentRecord | None:
        """The component that decides the verdict."""
        return next((item for item in self.components if item.role == DRIVER), None)

    @property
    def duration_s(self) -> float:
        """From its machines (its creation where it got none) to its end; 0 where that is open."""
        begin = instant(self.start_time) or instant(self.creation_time)
        end = instant(self.completion_time)
        if begin is None or end is None:
            return 0.0
        return max(0.0, (end - begin).total_seconds())


def record_of(document: Document, nodes: Iterable[Document] = ()) -> SessionRecord:
    """The record of a TestSession's document; logs and artifacts are added by who has them.

    Args:
        document: the session.
        nodes: documents of nodes; those that the session does not use are left out.
    """
    session = msgspec.convert(document, TestSession)
    meta, spec, status = session.metadata, session.spec, session.status
    env = _plain_env(spec)
    components = tuple(
        msgspec.structs.replace(
            msgspec.convert(msgspec.to_builtins(item), ComponentRecord),
            env=env.get(item.name if item.name in env else _without_index(item.name), {}),
        )
        for item in status.components
    )
    used = {item.node for item in components}
    facts = sorted(
        (_facts(node) for node in nodes if (node.get("metadata") or {}).get("name") in used),
        key=lambda node: node.name,
    )
    return SessionRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        test_name=name_of_test(meta, spec.test_name),
        phase=status.phase or QUEUED,
        verdict=status.verdict,
        reason=status.reason,
        message=status.message,
        attempts=status.attempt + 1,
        evidence_url=status.evidence.url,
        creation_time=meta.creation_timestamp,
        start_time=status.start_time,
        run_time=status.run_time,
        completion_time=status.completion_time,
        retention_seconds=spec.evidence.retention_seconds,
        components=components,
        events=status.events,
        metrics=status.metrics,
        thresholds={metric.name: metric.threshold for metric in spec.evidence.metrics},
        regressed_metrics=_names(meta.annotations.get(REGRESSED_ANNOTATION, "")),
        accepted_metrics=_names(meta.annotations.get(ACCEPTED_ANNOTATION, "")),
        nodes=tuple(facts),
        notes=(status.evidence.message,) if status.evidence.message else (),
        scenario=spec.scenario,
    )


def _names(listed: str) -> tuple[str, ...]:
    return tuple(filter(None, listed.split(",")))


def name_of_test(meta: ObjectMeta, given: str = "") -> str:
    """By which runs of one test are known: what the spec gives, else the name without its suffix."""
    if given:
        return given
    prefix = meta.generate_name.rstrip("-")
    return prefix if prefix and meta.name.startswith(meta.generate_name) else meta.name


def with_end(kept: SessionRecord, now: SessionRecord) -> SessionRecord:
    """A record that was kept while evidence was collected, with how the session ended.

    Args:
        kept: with files; its session had not ended.
        now: of the same session as the cluster has it.
    """
    return msgspec.structs.replace(
        kept,
        phase=now.phase,
        verdict=now.verdict,
        reason=now.reason,
        message=now.message,
        attempts=now.attempts,
        evidence_url=now.evidence_url or kept.evidence_url,
        start_time=now.start_time,
        run_time=now.run_time,
        completion_time=now.completion_time,
        events=now.events,
    )


def with_files(
    record: SessionRecord,
    logs: Mapping[str, Sequence[KeptFile]],
    artifacts: Mapping[str, Sequence[KeptFile]],
    tails: Mapping[str, str],
) -> SessionRecord:
    """The record with the files and log tails of its pods, each by the pod's name."""
    components = tuple(
        msgspec.structs.replace(
            item,
            logs=tuple(logs.get(item.pod, item.logs)),
            artifacts=tuple(artifacts.get(item.pod, item.artifacts)),
            tail=tails.get(item.pod, item.tail),
        )
        for item in record.components
    )
    return msgspec.structs.replace(record, components=components)


def encode(record: SessionRecord) -> bytes:
    """The record as JSON, with its format."""
    document = msgspec.to_builtins(record)
    return msgspec.json.format(msgspec.json.encode({"format": record.format, **document}))


def decode(raw: bytes) -> SessionRecord:
    """The record that ``encode`` wrote.

    Raises:
        RecordError: it is damaged, or of a later version of Grange.
    """
    try:
        record = msgspec.json.decode(raw, type=SessionRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError(f"cannot read the record: {error}; it is damaged") from error
    if record.format > FORMAT:
        raise RecordError(
            f"cannot read the record: it has format {record.format}, this version reads up to "
            f"{FORMAT}; use a later version"
        )
    return record


def instant(text: str | None) -> datetime | None:
    """The instant of a field; None where it is not set or malformed."""
    try:
        return timestamps.parse(text) if text else None
    except timestamps.TimestampError:
        return None


def _plain_env(spec: TestSessionSpec) -> dict[str, dict[str, str]]:
    """Variables by component: as its pods get them, the container's win over the component's."""
    found = {}
    for _, name, component in testsession.components(spec):
        pod = (component.template or {}).get("spec") or {}
        containers: list[Document] = pod.get("containers") or []
        first = next(iter(containers), {})
        main = next((item for item in containers if item.get("name") == MAIN_CONTAINER), first)
        last = {item.get("name"): item for item in (*component.env, *(main.get("env") or ()))}
        found[name] = {
            str(variable): str(item.get("value") or "")
            for variable, item in last.items()
            if not item.get("valueFrom")
        }
    return found


def _without_index(name: str) -> str:
    """The component of one of its several pods."""
    component, _, index = name.rpartition("-")
    return component if index.isdecimal() else ""


def _facts(node: Document) -> NodeFacts:
    meta, status = node.get("metadata") or {}, node.get("status") or {}
    info, capacity = status.get("nodeInfo") or {}, status.get("capacity") or {}
    return NodeFacts(
        name=str(meta["name"]),
        pool=str((meta.get("labels") or {}).get(POOL_LABEL, "")),
        kernel=str(info.get("kernelVersion", "")),
        os_image=str(info.get("osImage", "")),
        architecture=str(info.get("architecture", "")),
        cpu=str(capacity.get("cpu", "")),
        memory=str(capacity.get("memory", "")),
    )
