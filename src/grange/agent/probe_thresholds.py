"""Probes: when to ask, and what the answers amount to (pure).

A readiness or startup probe without ``initialDelaySeconds`` is first asked at once and then in
quick succession until its first success, so that a pod is Ready within a tenth of a second of its
program; failures count towards ``failureThreshold`` only as often as the period would let them.
"""

from dataclasses import dataclass
from enum import Enum

from grange.agent.probe_answer import MESSAGE_CHARS, Answer
from grange.agent.probe_types import type_of
from grange.api.kinds.pod import Container, Probe

_FAST_GROWTH = 1.25


class Kind(Enum):
    """What a probe decides."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"


def of(container: Container) -> list[tuple[Kind, Probe]]:
    """The container's probes, the one that holds back the others first.

    One without an action of a known type could never pass and is left out.
    """
    found = (
        (Kind.STARTUP, container.startup_probe),
        (Kind.READINESS, container.readiness_probe),
        (Kind.LIVENESS, container.liveness_probe),
    )
    return [(kind, probe) for kind, probe in found if probe is not None and type_of(probe)]


@dataclass(slots=True)
class Record:
    """What the answers to one probe of one run amount to.

    Attributes:
        kind: what it decides.
        probe: thresholds and periods.
        fast_s: the first wait of the quick succession; zero for none.
        passing: the verdict: None until there is one.
        failures: counted failures in a row.
        message: message of the last failure; empty after a success.
        unknown: why the probe could not be asked the last time; empty where it could.
    """

    kind: Kind
    probe: Probe
    fast_s: float = 0.0
    passing: bool | None = None
    failures: int = 0
    message: str = ""
    unknown: str = ""
    _successes: int = 0
    _asked: int = 0
    _counted_at: float | None = None

    def first_wait(self) -> float:
        """Seconds from the start of the run to the first question."""
        return float(self.probe.initial_delay_seconds)

    def next_wait(self) -> float:
        """Seconds from an answer to the next question."""
        period = float(max(1, self.probe.period_seconds))
        quick = self.kind is not Kind.LIVENESS and not self.probe.initial_delay_seconds
        if self.fast_s <= 0 or not quick or self.passing:
            return period
        return min(period, self.fast_s * _FAST_GROWTH ** max(0, self._asked - 1))

    def take(self, answer: Answer, now: float) -> bool:
        """Note an answer; whether the verdict changed.

        Args:
            answer: of the probe.
            now: monotonic time.
        """
        self._asked += 1
        before = self.passing
        self.unknown = answer.message[:MESSAGE_CHARS] if answer.ok is None else ""
        if answer.ok is None:
            return False
        if answer.ok:
            self._successes += 1
            self.failures = 0
            self._counted_at = None
            self.message = ""
            if self._successes >= max(1, self.probe.success_threshold):
                self.passing = True
        else:
            self._successes = 0
            self.message = answer.message[:MESSAGE_CHARS]
            period = max(1, self.probe.period_seconds)
            # A hair less than the period: the wait between questions is never exact.
            if self._counted_at is None or now - self._counted_at >= period * 0.9:
                self.failures += 1
                self._counted_at = now
                if self.failures >= max(1, self.probe.failure_threshold):
                    self.passing = False
        return self.passing != before
