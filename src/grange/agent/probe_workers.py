"""Asks the probes of running containers and turns the answers into ``ManagedContainer.started/ready/unhealthy``.

One task a probe, children of the pod's nursery. A task ends with the run that it was started for.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from grange.agent import probe_thresholds
from grange.agent.config import NodeConfig
from grange.agent.events import AgentReason
from grange.agent.lifecycle import ManagedContainer
from grange.agent.metrics import AgentMetrics
from grange.agent.probe_answer import ProbeTarget
from grange.agent.probe_thresholds import Kind, Record
from grange.agent.prober import Prober
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod, Probe
from grange.base.clock import Clock
from grange.base.tasks import Child, Nursery
from grange.reconcile.recorder import WARNING, Recorder

_FAST_COMMAND_S = 0.1  # a command costs a process, a connection next to nothing


class ProbingTools(Protocol):
    """The part of a worker's tools that probing needs."""

    @property
    def prober(self) -> Prober:
        """What asks."""

    @property
    def recorder(self) -> Recorder:
        """Where Events go."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def config(self) -> NodeConfig:
        """Of the node."""

    @property
    def metrics(self) -> AgentMetrics:
        """What is counted."""


class Probing:
    """The probes of one pod's running containers.

    Args:
        nursery: owns the tasks.
        tools: prober, recorder, clock, configuration.
        changed: called after a change of the result.
    """

    def __init__(self, nursery: Nursery, tools: ProbingTools, changed: Callable[[], None]) -> None:
        self._nursery = nursery
        self._tools = tools
        self._changed = changed
        self._tasks: dict[str, list[Child[None]]] = {}

    def start(self, container: ManagedContainer, target: ProbeTarget, pod: Pod) -> None:
        """A run began (or goes on, if ``container.started`` is set): start probing."""
        found = probe_thresholds.of(container.spec)
        kinds = {kind for kind, _ in found}
        started = asyncio.Event()
        if Kind.STARTUP not in kinds or container.started:
            container.started = True
            started.set()
        if Kind.READINESS not in kinds:
            container.ready = container.started
        began = self._tools.clock.monotonic()
        self._tasks[container.name] = [
            self._nursery.start(
                self._ask(
                    container, self._record(kind, probe, container), target, pod, started, began
                ),
                name=f"probe {kind.value} {container.name}",
            )
            for kind, probe in found
            if not (kind is Kind.STARTUP and started.is_set())
        ]

    def stop(self, container: str) -> None:
        """The run ended or is about to: stop asking."""
        for task in self._tasks.pop(container, ()):
            task.cancel()

    def _record(self, kind: Kind, probe: Probe, container: ManagedContainer) -> Record:
        fast_s = self._tools.config.timing.probe_fast_s
        if probe.exec is not None:
            fast_s = max(fast_s, _FAST_COMMAND_S)
        record = Record(kind, probe, fast_s=fast_s)
        if kind is Kind.READINESS and container.ready:
            record.passing = True
        container.probes[kind.value] = record
        return record

    async def _ask(
        self,
        container: ManagedContainer,
        record: Record,
        target: ProbeTarget,
        pod: Pod,
        started: asyncio.Event,
        began: float,
    ) -> None:
        clock = self._tools.clock
        if record.kind is not Kind.STARTUP:
            await started.wait()
        await clock.sleep(began + record.first_wait() - clock.monotonic())
        while True:
            before = record.failures, record.message, record.unknown
            answer = await self._tools.prober.ask(record.probe, target)
            outcome = {True: "ok", False: "failed", None: "unknown"}[answer.ok]
            self._tools.metrics.probes.labels(record.kind.value, outcome).inc()
            verdict = record.take(answer, clock.monotonic())
            if answer.ok is False and record.failures != before[0]:
                self._record_failure(record, pod)
            if record.unknown and not before[2]:
                message = f"{record.kind.value} probe could not be asked: {record.unknown}"
                self._tools.recorder.event(
                    pod, WARNING, AgentReason.PROBE_UNKNOWN, message, kind=POD
                )
            if verdict or (record.passing is False and record.message != before[1]):
                self._apply(container, record, started)
                self._changed()
            if record.kind is Kind.STARTUP and record.passing:
                return
            await clock.sleep(record.next_wait())

    def _apply(self, container: ManagedContainer, record: Record, started: asyncio.Event) -> None:
        match record.kind:
            case Kind.READINESS:
                container.ready = bool(record.passing)
            case Kind.STARTUP if record.passing:
                container.started = True
                started.set()
                if all(
                    kind is not Kind.READINESS for kind, _ in probe_thresholds.of(container.spec)
                ):
                    container.ready = True
            case _:
                if record.passing is False:
                    container.probe_grace_s = record.probe.termination_grace_period_seconds
                    container.unhealthy = f"{record.kind.value} probe failed: {record.message}"

    def _record_failure(self, record: Record, pod: Pod) -> None:
        """An Event when the threshold is reached, and then ever more rarely: 2, 4, 8 … times it."""
        times, rest = divmod(record.failures, max(1, record.probe.failure_threshold))
        if rest == 0 and times & (times - 1) == 0:
            message = f"{record.kind.value} probe failed: {record.message}"
            self._tools.recorder.event(pod, WARNING, AgentReason.UNHEALTHY.value, message, kind=POD)


def troubles(containers: Sequence[ManagedContainer]) -> dict[str, str]:
    """Container name to what its failing startup or readiness probe reports."""
    found: dict[str, str] = {}
    for container in containers:
        for record in container.probes.values():
            if record.passing is False and record.kind is not Kind.LIVENESS:
                found[container.name] = f"{record.kind.value} probe failed: {record.message}"
    return found
