"""Measures what the containers of a runtime use, once per period however often it is asked for."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from grange.agent.container_runtime import ContainerID, ContainerUsage, PodRecord, PodRuntime
from grange.api.resource_metrics import ContainerSample, PodSample, UsageSample
from grange.base.clock import Clock

PERIOD_S = 15.0


class UsageSampler:
    """Keeps the newest sample; the nodes that share a runtime share its sampler.

    Args:
        runtime: whose containers are measured.
        nodes: names of the nodes that it serves.
        clock: time.

    Attributes:
        reads: readings of single containers since the start: one per container and period.
    """

    def __init__(self, runtime: PodRuntime, nodes: Sequence[str], clock: Clock) -> None:
        self._runtime = runtime
        self._nodes = tuple(nodes)
        self._clock = clock
        self._cpu: Mapping[ContainerID, float] = {}
        self._measured_at: float | None = None
        self._newest: UsageSample | None = None
        self.reads = 0

    async def run(self) -> None:
        """Measure every period until cancelled."""
        while True:
            await self.measure()
            await self._clock.sleep(PERIOD_S)

    async def measure(self) -> None:
        """Take a sample now."""
        readings = await self._runtime.usage()
        self.reads += len(readings)
        at, now = self._clock.monotonic(), self._clock.now()
        window = PERIOD_S if self._measured_at is None else at - self._measured_at
        pods = pod_samples(self._runtime.pods(), readings, self._cpu, window, now)
        self._newest = UsageSample(now, window, self._nodes, pods)
        self._cpu = {reading.id: reading.cpu_s for reading in readings}
        self._measured_at = at

    def newest(self) -> UsageSample | None:
        """The newest sample; None before the first."""
        return self._newest

    def samples(self) -> tuple[UsageSample, ...]:
        """The newest sample, if there is one."""
        return (self._newest,) if self._newest is not None else ()


def pod_samples(
    records: Sequence[PodRecord],
    readings: Sequence[ContainerUsage],
    before: Mapping[ContainerID, float],
    window_s: float,
    now: datetime,
) -> tuple[PodSample, ...]:
    """The samples of the pods that run.

    A container that was not read before is measured since its start, so that a new pod is shown
    after one period.

    Args:
        records: the pods of the runtime.
        readings: of their running containers.
        before: seconds of CPU at the reading before.
        window_s: seconds since then.
        now: the time of the readings.
    """
    by_pod: dict[str, list[ContainerUsage]] = {}
    for reading in readings:
        by_pod.setdefault(reading.id.pod_uid, []).append(reading)
    samples = []
    for record in records:
        setup = record.setup
        windows, containers = [], {}
        started = {run.id: run.started_at for run in record.runs}
        for reading in by_pod.get(setup.uid, ()):
            used, seconds = reading.cpu_s, window_s
            if reading.id in before:
                used -= before[reading.id]
            elif (since := started.get(reading.id)) is not None:
                seconds = (now - since).total_seconds()
            cores = max(0.0, used / seconds) if seconds > 0 else 0.0
            windows.append(max(0.0, seconds))
            containers[reading.id.container] = ContainerSample(cores, reading.memory_bytes)
        if containers:
            samples.append(
                PodSample(
                    setup.uid,
                    setup.namespace,
                    setup.name,
                    setup.node_name,
                    max(windows),
                    containers,
                )
            )
    return tuple(samples)
