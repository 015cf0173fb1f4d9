"""Which pods count as available: ready for long enough, on a node that is there to say so."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.controllers.replication import ranking
from grange.controllers.replication.readiness import Readiness


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
        if not ranking.is_ready(pod, down):
            continue
        ready += 1
        wait = wait_for_available(controller, pod, now, readiness)
        if wait > 0.0:
            waits.append(wait)
        else:
            available.add(pod.metadata.uid)
    return Health(frozenset(available), ready, min(waits, default=None))
