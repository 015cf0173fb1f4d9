"""How long pods have been ready, by our own clock.

The stamp on a pod's condition is by the clock of its node, which may be wrong; a pod that has just
become ready must not count as available because its node lives in the past. So what we have seen
ourselves counts by our clock. A pod that was ready when we first saw it (we have just started) is
believed if its stamp is older than what is asked by more than clocks differ; otherwise it waits.
"""

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.base.clock import Clock

SKEW_S = 60.0
"""Clocks of nodes are taken to be right within so many seconds."""


class Readiness:
    """Remembers, by pod, since when it is ready; told by the handlers of the pod informer.

    Args:
        clock: our own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, bool]] = {}
        self._vouched: dict[str, str | None] = {}

    def appeared(self, pod: Pod) -> None:
        """The pod is in the cache for the first time."""
        if pods.is_ready(pod):
            self._since.setdefault(pod.metadata.uid, (self._clock.monotonic(), False))

    def changed(self, old: Pod, new: Pod) -> None:
        """The pod has changed in the cache."""
        if not pods.is_ready(new):
            self._since.pop(new.metadata.uid, None)
        elif old.metadata.uid != new.metadata.uid or _since(old) != _since(new):
            # Also ready, then not, then ready again, of which only the ends reached us.
            self._since[new.metadata.uid] = (self._clock.monotonic(), True)

    def gone(self, pod: Pod) -> None:
        """The pod is gone from the cache."""
        self._since.pop(pod.metadata.uid, None)
        self._vouched.pop(pod.metadata.uid, None)

    def vouch(self, pod: Pod) -> None:
        """The pod's node was heard of when the pod had been ready for long enough."""
        if pod.metadata.uid in self._since:
            self._vouched[pod.metadata.uid] = _since(pod)

    def is_vouched(self, pod: Pod) -> bool:
        """Whether that was so, and the pod has been ready ever since."""
        return (since := _since(pod)) is not None and self._vouched.get(pod.metadata.uid) == since

    def wait_s(self, pod: Pod, needed_s: float, age_s: float) -> float:
        """Seconds until a ready pod has been ready for long enough; zero if it has.

        Args:
            pod: ready.
            needed_s: what is asked.
            age_s: how long it has been ready by its own stamp.
        """
        now = self._clock.monotonic()
        since, witnessed = self._since.get(pod.metadata.uid, (now, False))
        if not witnessed and age_s >= needed_s + SKEW_S:
            return 0.0
        return max(0.0, needed_s - (now - since))


def _since(pod: Pod) -> str | None:
    """The stamp of a ready pod; None for one that is not ready."""
    ready = pods.condition(pod, "Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else None
