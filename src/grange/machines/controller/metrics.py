"""Metrics of machines. Series with a pool's name exist as long as the pool does."""

from collections import Counter as Tally
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from grange.api import timestamps
from grange.api.kinds.machine import NODE_POOL_LABEL, Machine
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.base.metrics import CollectorRegistry, Counter, Gauge, Histogram, once_per_registry
from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)

ANY_PACKED = "*"
"""Stands for the packed pools in the label of pods that select none; no pool is called so."""

LAUNCHED, FOUND, FAILED = "launched", "found", "failed"
"""Results of launches: answered, shown by a list though no answer came, and neither refused nor answered."""

_REFUSALS: dict[type[ProviderError], str] = {
    CapacityError: "capacity",
    MisconfiguredError: "misconfigured",
    InstanceGoneError: "gone",
    ThrottledError: "throttled",
}
_RESULTS = (LAUNCHED, FOUND, FAILED, *_REFUSALS.values())
_FAILURES = ("BootTimeout", "InstanceEnding", "InstanceGone")  # ends that no one has asked for
_BOOTING = frozenset({MachinePhase.CREATING, MachinePhase.CREATED})
_BOOT_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0)
_PASS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class MachineMetrics:
    """The instruments of one registry.

    Attributes:
        machines: grange_machines by pool and phase.
        price: grange_machine_price_per_hour by pool.
        boot_seconds: grange_machine_boot_seconds by pool.
        launches: grange_machine_launches_total by pool and result.
        boot_failures: grange_machine_boot_failures_total by pool and reason.
        waiting: grange_machine_waiting_pods by pool.
        oldest_waiting: grange_machine_oldest_waiting_pod_seconds by pool.
        pass_seconds: grange_machine_pass_seconds by mode.
        braked: grange_machine_pool_braked by pool.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.machines = Gauge(
            "grange_machines",
            "Records of machines, by pool and phase.",
            ["pool", "phase"],
            registry=registry,
        )
        self.price = Gauge(
            "grange_machine_price_per_hour",
            "What the machines of a pool that have not ended cost an hour, in the provider's currency.",
            ["pool"],
            registry=registry,
        )
        self.boot_seconds = Histogram(
            "grange_machine_boot_seconds",
            "From the launch of a machine, or from its resumption, to the phase Available.",
            ["pool"],
            buckets=_BOOT_BUCKETS,
            registry=registry,
        )
        self.launches = Counter(
            "grange_machine_launches",
            "Calls that launch machines, by result: launched, found (without an answer, by the next list), "
            "failed (tried again), capacity, misconfigured, gone, throttled.",
            ["pool", "result"],
            registry=registry,
        )
        self.boot_failures = Counter(
            "grange_machine_boot_failures",
            "Launched machines that ended before they were available, by reason: BootTimeout, "
            "InstanceEnding, InstanceGone.",
            ["pool", "reason"],
            registry=registry,
        )
        self.waiting = Gauge(
            "grange_machine_waiting_pods",
            "Pods that wait for a machine, by the pool that they select; * where any packed pool may serve.",
            ["pool"],
            registry=registry,
        )
        self.oldest_waiting = Gauge(
            "grange_machine_oldest_waiting_pod_seconds",
            "Age at the last pass of the oldest pod that waits for a machine, by the pool that it selects; "
            "0 where none waits.",
            ["pool"],
            registry=registry,
        )
        self.pass_seconds = Histogram(
            "grange_machine_pass_seconds",
            "What a pass takes, writes included, by mode: Dedicated over one pool, Packed over all packed ones.",
            ["mode"],
            buckets=_PASS_BUCKETS,
            registry=registry,
        )
        self.braked = Gauge(
            "grange_machine_pool_braked",
            "1 while so many machines of a pool are silent that none is ended.",
            ["pool"],
            registry=registry,
        )


instruments = once_per_registry(MachineMetrics)
"""The instruments of a registry; the same object for the same registry."""


class MachineInstruments:
    """Keeps the metrics of the pools that one controller works on.

    Args:
        metrics: the instruments.
    """

    def __init__(self, metrics: MachineMetrics) -> None:
        self._metrics = metrics
        self._pools: set[str] = set()

    def pool(self, pool: str, machines: Sequence[Machine], price: Decimal) -> None:
        """Show the machines of a pool."""
        self._pools.add(pool)
        counts = Tally(machine.phase for machine in machines)
        for phase in MachinePhase:
            self._metrics.machines.labels(pool, phase.value).set(counts[phase])
        self._metrics.price.labels(pool).set(float(price))

    def waiting(self, pool: str, pods: Sequence[Pod], now: datetime) -> None:
        """Show the pods that wait for a machine of a pool, or of any with ``ANY_PACKED``."""
        self._pools.add(pool)
        created = (timestamps.parse_or(pod.metadata.creation_timestamp, now) for pod in pods)
        age_s = max(0.0, (now - min(created, default=now)).total_seconds())
        self._metrics.waiting.labels(pool).set(len(pods))
        self._metrics.oldest_waiting.labels(pool).set(age_s)

    def waiting_packed(self, pods: Sequence[Pod], pools: Sequence[str], now: datetime) -> None:
        """Show the pods that wait for packed pools: those that select one, and those that select none."""
        selected: dict[str, list[Pod]] = {pool: [] for pool in (ANY_PACKED, *pools)}
        for pod in pods:
            pool = pod.spec.node_selector.get(NODE_POOL_LABEL, ANY_PACKED)
            if pool in selected:
                selected[pool].append(pod)
        for pool, found in selected.items():
            self.waiting(pool, found, now)

    def braked(self, pool: str, *, braked: bool) -> None:
        """Show whether silent machines of a pool are kept because they are too many."""
        self._pools.add(pool)
        self._metrics.braked.labels(pool).set(braked)

    def passed(self, mode: str, seconds: float) -> None:
        """Count a pass."""
        self._metrics.pass_seconds.labels(mode).observe(seconds)

    def launched(self, machine: Machine, result: str) -> None:
        """Count a launch: one of ``LAUNCHED``, ``FOUND``."""
        self._metrics.launches.labels(machine.spec.pool, result).inc()

    def refused(self, machine: Machine, error: ProviderError) -> None:
        """Count a launch that was answered with an error, or not at all."""
        result = _REFUSALS.get(type(error), FAILED)
        self._metrics.launches.labels(machine.spec.pool, result).inc()

    def booted(self, machine: Machine, now: datetime) -> None:
        """Observe the boot of a machine that has joined now."""
        if machine.status.launch_time is not None:
            took_s = (now - timestamps.parse(machine.status.launch_time)).total_seconds()
            self._metrics.boot_seconds.labels(machine.spec.pool).observe(max(0.0, took_s))

    def ended(self, before: Machine, reason: str) -> None:
        """Count the end of a machine, if it is a failed boot."""
        if before.phase in _BOOTING and reason in _FAILURES:
            self._metrics.boot_failures.labels(before.spec.pool, reason).inc()

    def forget(self, pool: str) -> None:
        """The pool is gone, and its series with it."""
        self._hide(pool)
        self._metrics.boot_seconds.remove(pool)
        for result in _RESULTS:
            self._metrics.launches.remove(pool, result)
        for reason in _FAILURES:
            self._metrics.boot_failures.remove(pool, reason)

    def stop(self) -> None:
        """The controller works no more: what is there now is shown by the one that follows."""
        for pool in sorted(self._pools):
            self._hide(pool)

    def _hide(self, pool: str) -> None:
        self._pools.discard(pool)
        for phase in MachinePhase:
            self._metrics.machines.remove(pool, phase.value)
        for gauge in (
            self._metrics.price,
            self._metrics.waiting,
            self._metrics.oldest_waiting,
            self._metrics.braked,
        ):
            gauge.remove(pool)
