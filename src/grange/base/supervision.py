"""Which services run, which crashed, and what loops left out: shared by all users of one registry."""

from dataclasses import dataclass

from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, Counter, Gauge, once_per_registry

STABLE_S = 10.0
"""A service that crashed counts as down until it has run for so long again."""

_REMEMBERED_MAX = 1000  # versions of unreadable objects; beyond it one may be logged twice


@dataclass(slots=True)
class _Crash:
    error: str
    attempt: int
    restarted_at: float | None = None


class Services:
    """The state of every supervised service.

    Args:
        registry: shows grange_service_up and grange_service_crashes_total by service.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge(
            "grange_service_up",
            "1 while the service runs, 0 between a crash and its restart.",
            ["service"],
            registry=registry,
        )
        self._crashes = Counter(
            "grange_service_crashes",
            "Crashes of a supervised service.",
            ["service"],
            registry=registry,
        )
        self._states: dict[str, _Crash | None] = {}

    def started(self, name: str, now: float) -> None:
        """The service starts, at a monotonic time in seconds."""
        crash = self._states.setdefault(name, None)
        if crash is not None:
            crash.restarted_at = now
        self._up.labels(name).set(1)

    def crashed(self, name: str, error: BaseException, attempt: int) -> None:
        """It crashed, for the nth time in a row, and waits for its restart."""
        self._states[name] = _Crash(type(error).__name__, attempt)
        self._up.labels(name).set(0)
        self._crashes.labels(name).inc()

    def ended(self, name: str) -> None:
        """It is done or was cancelled."""
        if name in self._states:
            del self._states[name]
            self._up.remove(name)

    def faults(self, now: float) -> dict[str, str]:
        """What is wrong with each service, in the order of starting; empty texts for healthy ones.

        The error is named by its type alone: its message may hold what only administrators may see.
        """
        return {name: _fault(crash, now) for name, crash in self._states.items()}


def _fault(crash: _Crash | None, now: float) -> str:
    if crash is None:
        return ""
    if crash.restarted_at is None:
        return f"crashed ({crash.error}, attempt {crash.attempt}) and waits for its restart"
    if now - crash.restarted_at < STABLE_S:
        return f"restarted after a crash ({crash.error}), less than {STABLE_S:g} s ago"
    return ""


services = once_per_registry(Services)
"""The services of a registry; the same object for the same registry."""


class _Counters:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.skipped = Counter(
            "grange_skipped_objects",
            "Versions of objects that a loop could not read and left out.",
            ["loop"],
            registry=registry,
        )


_counters = once_per_registry(_Counters)


class SkippedObjects:
    """The objects that a loop leaves out: each version is counted and logged once.

    Args:
        loop: the name of the loop, from a bounded set.
        log: where they are logged, as errors.
        registry: shows grange_skipped_objects_total by loop.
    """

    def __init__(self, loop: str, *, log: Logger, registry: CollectorRegistry) -> None:
        self._log = log
        self._loop = loop
        self._count = _counters(registry).skipped.labels(loop)
        self._seen: dict[str, str] = {}

    def skip(
        self, key: object, version: object, error: object, event: str = "object skipped"
    ) -> None:
        """Leave out one version of an object because of an error, logged as this event."""
        name, text = str(key), str(version)
        if self._seen.pop(name, None) != text:
            self._count.inc()
            self._log.error(event, loop=self._loop, key=name, version=text, error=error)
        self._seen[name] = text
        if len(self._seen) > _REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]
