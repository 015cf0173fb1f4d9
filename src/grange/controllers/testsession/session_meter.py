"""Measures sessions by the changes of their statuses."""

from collections import Counter

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.testsession import TestSessionStatus
from grange.controllers.testsession.session_events import RETRY, events_since
from grange.controllers.testsession.session_metrics import SessionMetrics
from grange.controllers.testsession.session_phase import FINAL, SessionPhase


class SessionMeter:
    """Sets the metrics of the sessions that this process works on.

    Args:
        metrics: the instruments.
    """

    def __init__(self, metrics: SessionMetrics) -> None:
        self._metrics = metrics
        self._phases: dict[str, str] = {}

    def measure(self, old: TestSessionStatus, new: TestSessionStatus) -> None:
        """A status was replaced by another one."""
        if new.phase in testsession.FINAL_PHASES and old.phase not in testsession.FINAL_PHASES:
            self._metrics.verdicts.labels(new.verdict, _bounded(new.reason)).inc()
        for event in events_since(old.events, new.events):
            if event.type == RETRY:
                self._metrics.retries.labels(_bounded(event.reason)).inc()
        if new.start_time and not old.start_time:
            waited = old.phase_time if old.phase == testsession.QUEUED else new.start_time
            self._metrics.queue.observe(_seconds(waited, new.start_time))
        if new.run_time and not old.run_time:
            self._metrics.provision.observe(_seconds(new.start_time, new.run_time))

    def count_phase(self, uid: str, phase: str) -> None:
        """Count a session by its phase, and no longer by its former one."""
        phase = "" if phase in testsession.FINAL_PHASES else phase
        if phase == self._phases.get(uid, ""):
            return
        if phase:
            self._phases[uid] = phase
        else:
            self._phases.pop(uid, None)
        counts = Counter(self._phases.values())
        for one in SessionPhase:
            if one not in FINAL:
                self._metrics.phases.labels(one.value).set(counts[one.value])


def _bounded(reason: str) -> str:
    """A reason as the value of a label; those of leases are bounded, too."""
    return reason if reason.isidentifier() else ""


def _seconds(start: str | None, end: str | None) -> float:
    first = timestamps.parse_or(start, timestamps.EPOCH)
    last = timestamps.parse_or(end, first)
    return max(0.0, (last - first).total_seconds())
