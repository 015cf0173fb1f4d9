"""Which pods count as available: ready for ``minReadySeconds``, on a Ready node.

The timestamp of a pod's condition is by the clock of its node, which may be wrong; a pod that has just
become ready must not count as available because its node's clock is behind. So what this process has
seen itself counts by its own clock. A pod that was ready when it was first seen (the process has just
started) is believed if its timestamp is older than required by more than clocks differ; otherwise it
waits.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.clock import Clock
from grange.controllers.shared import deletion_order

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


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of pods.

    Attributes:
        available: uids of those that have been ready for ``minReadySeconds``.
        ready: how many are ready.
        next_available_s: seconds until the next ready one counts as available; None for none.
    """

    available: frozenset[str]
    ready: int
    next_available_s: float | None


def wait_for_available(
    controller: ReplicationController,
    pod: Pod,
    now: datetime,
    readiness: Readiness | None = None,
) -> float:
    """Seconds until a pod that is ready counts as available; zero if it does.

    Args:
        controller: whose ``minReadySeconds`` counts.
        pod: one that is ready.
        now: wall time.
        readiness: what we have seen by our own clock; without it the pod's stamp is believed.
    """
    needed = controller.spec.rollout.min_ready_seconds
    if needed <= 0:
        return 0.0
    ready = pods.condition(pod, "Ready")
    if ready is None or not ready.last_transition_time:
        return needed
    age_s = (now - timestamps.parse_or(ready.last_transition_time, now)).total_seconds()
    if readiness is not None:
        return readiness.wait_s(pod, needed, age_s)
    return max(0.0, needed - age_s)


def observe(
    controller: ReplicationController,
    active: Iterable[Pod],
    down: Container[str],
    now: datetime,
    readiness: Readiness | None = None,
) -> Health:
    """Judge the active pods of a controller.

    Args:
        controller: whose ``minReadySeconds`` counts.
        active: pods that are neither finished nor on their way out.
        down: names of nodes that are gone or not ready: what their pods say is stale.
        now: wall time.
        readiness: what we have seen by our own clock; without it the pods' stamps are believed.
    """
    available: set[str] = set()
    waits: list[float] = []
    ready = 0
    for pod in active:
        if not deletion_order.is_ready(pod, down):
            continue
        ready += 1
        wait = wait_for_available(controller, pod, now, readiness)
        if wait > 0.0:
            waits.append(wait)
        else:
            available.add(pod.metadata.uid)
    return Health(frozenset(available), ready, min(waits, default=None))
