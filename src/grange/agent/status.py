"""The status of a pod from what is known of its containers: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grange.agent import states
from grange.agent.lifecycle import Ending, Role, Track
from grange.agent.runtime import ContainerID, Run
from grange.agent.states import Phase, PhaseEvent, State
from grange.api import conditions, quantity, timestamps
from grange.api.kinds.pod import Container, Pod
from grange.api.meta import Condition, Document
from grange.base import statemachine

OWN_CONDITIONS = frozenset({"PodScheduled", "Initialized", "ContainersReady", "Ready"})
"""The conditions of a pod that its agent writes."""

DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pod runs.

    Attributes:
        host_ip: the machine's address.
        pod_ip: the pod's; empty while it has none.
    """

    host_ip: str
    pod_ip: str = ""


def container_id(target: ContainerID) -> str:
    """``containerID`` of an attempt."""
    return f"process://{target}"


def phase_of(current: str, tracks: Sequence[Track], ending: Ending) -> Phase:
    """The pod's phase; it never goes back.

    Args:
        current: the phase so far; empty for none.
        tracks: the containers.
        ending: why the pod is coming to its end, if it is.
    """
    known = {item.value for item in Phase}
    phase = Phase(current) if current in known else Phase.PENDING
    event = _phase_event(tracks, ending)
    if event is None or phase in states.FINISHED:
        return phase
    return statemachine.advance(states.POD, phase, event)


def _phase_event(tracks: Sequence[Track], ending: Ending) -> PhaseEvent | None:
    mains = [track for track in tracks if track.role is Role.MAIN]
    others = [track for track in tracks if track.role is not Role.SIDECAR]
    # Sidecars included: a finished pod is one of which nothing runs any more.
    alive = any(track.state in states.ALIVE for track in tracks)
    if not alive and all(track.state is State.DONE for track in mains):
        failed = ending is Ending.DEADLINE or any(track.failed for track in others)
        return PhaseEvent.FAILED if failed else PhaseEvent.SUCCEEDED
    return PhaseEvent.STARTED if all(track.latest is not None for track in mains) else None


def build(
    pod: Pod,
    tracks: Sequence[Track],
    place: Place,
    troubles: Mapping[str, str],
    *,
    ending: Ending,
    now: datetime,
) -> Document:
    """The whole status that this agent is responsible for.

    Conditions of others are not part of it; times of conditions move only with their status.

    Args:
        pod: the newest object.
        tracks: its containers.
        place: where it runs.
        troubles: container name to what its failing probe says.
        ending: why the pod is coming to its end, if it is.
        now: wall time.
    """
    stamp = timestamps.rfc3339(now)
    phase = phase_of(pod.status.phase, tracks, ending)
    status: Document = {
        "phase": phase.value,
        "hostIP": place.host_ip,
        "startTime": pod.status.start_time or stamp,
        "qosClass": qos_class(pod),
        "conditions": _conditions(pod, tracks, troubles, phase, stamp),
        "containerStatuses": [
            _container_status(track, pod) for track in tracks if track.role is Role.MAIN
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _container_status(track, pod) for track in tracks if track.role is not Role.MAIN
        ]
    if place.pod_ip:
        status["podIP"] = place.pod_ip
        status["podIPs"] = [{"ip": place.pod_ip}]
        status["hostIPs"] = [{"ip": place.host_ip}]
    if ending is Ending.DEADLINE:
        status["reason"] = ending.value
        status["message"] = DEADLINE_MESSAGE
    return status


def rejected(pod: Pod, reason: str, message: str, *, host_ip: str, now: datetime) -> Document:
    """The status of a pod that the node does not take."""
    stamp = timestamps.rfc3339(now)
    return {
        "phase": Phase.FAILED.value,
        "reason": reason,
        "message": message,
        "hostIP": host_ip,
        "startTime": pod.status.start_time or stamp,
        "qosClass": qos_class(pod),
    }


def _conditions(
    pod: Pod, tracks: Sequence[Track], troubles: Mapping[str, str], phase: Phase, stamp: str
) -> list[Document]:
    serving = [track for track in tracks if track.role is not Role.INIT]
    inits = [track for track in tracks if track.role is Role.INIT]
    result = pod.status.conditions
    if conditions.find(result, "PodScheduled") is None:
        result = conditions.set_condition(result, Condition("PodScheduled", "True"), stamp)
    incomplete = [track.name for track in inits if not track.succeeded]
    result = conditions.set_condition(result, _initialized(incomplete, phase), stamp)
    containers_ready = _containers_ready(serving, troubles, phase)
    for wanted in (containers_ready, _ready(containers_ready, pod)):
        if _has_restarted(conditions.find(result, wanted.type), serving, stamp):
            result = tuple(item for item in result if item.type != wanted.type)
        result = conditions.set_condition(result, wanted, stamp)
    return [msgspec.to_builtins(item) for item in result if item.type in OWN_CONDITIONS]


def _ready(containers_ready: Condition, pod: Pod) -> Condition:
    """Ready with its containers, once every readiness gate is True as well."""
    if containers_ready.status == "True":
        closed = [
            text
            for gate in pod.spec.readiness_gates
            if (text := _closed(gate.get("conditionType", ""), pod))
        ]
        if closed:
            return Condition("Ready", "False", "ReadinessGatesNotReady", ", ".join(closed))
    return msgspec.structs.replace(containers_ready, type="Ready")


def _closed(gate: str, pod: Pod) -> str:
    """Why a readiness gate keeps the pod from being ready, as Kubernetes says it; else empty."""
    found = conditions.find(pod.status.conditions, gate)
    if found is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    if found.status != "True":
        return f'the status of pod readiness gate "{gate}" is not "True", but {found.status}'
    return ""


def _has_restarted(known: Condition | None, serving: Sequence[Track], stamp: str) -> bool:
    """Whether a container began after the time since which the condition says that all is well.

    It ended and began again while nobody looked, or while nothing could be written: the pod was
    not ready in between.
    """
    if known is None or known.status != "True" or not known.last_transition_time:
        return False
    begun = [timestamps.rfc3339(track.latest.started_at) for track in serving if track.latest]
    return any(known.last_transition_time < since <= stamp for since in begun)


def _initialized(incomplete: Sequence[str], phase: Phase) -> Condition:
    if not incomplete:
        reason = "PodCompleted" if phase is Phase.SUCCEEDED else ""
        return Condition("Initialized", "True", reason)
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return Condition("Initialized", "False", "ContainersNotInitialized", message)


def _containers_ready(
    serving: Sequence[Track], troubles: Mapping[str, str], phase: Phase
) -> Condition:
    if phase is Phase.SUCCEEDED:
        return Condition("ContainersReady", "False", "PodCompleted")
    if phase is Phase.FAILED:
        return Condition("ContainersReady", "False", "PodFailed")
    unready = [track.name for track in serving if not track.ready]
    if not unready:
        return Condition("ContainersReady", "True")
    message = f"containers with unready status: [{' '.join(unready)}]"
    blocked = {track.name: track.message for track in serving if track.state is State.BLOCKED}
    causes = {**blocked, **troubles}
    said = [f"{name}: {causes[name]}" for name in unready if causes.get(name)]
    return Condition("ContainersReady", "False", "ContainersNotReady", "; ".join([message, *said]))


def _container_status(track: Track, pod: Pod) -> Document:
    latest, previous = track.latest, track.previous
    status: Document = {
        "name": track.name,
        "image": track.spec.image,
        "imageID": "",
        "ready": track.ready,
        "started": track.started,
        "restartCount": latest.id.attempt if latest is not None else track.attempt,
        "lastState": {},
    }
    if latest is not None:
        status["containerID"] = container_id(latest.id)
    if track.state in states.ALIVE and latest is not None:
        status["state"] = {"running": {"startedAt": timestamps.rfc3339(latest.started_at)}}
    elif track.state is State.DONE and latest is not None:
        status["state"] = {"terminated": _terminated(latest)}
    else:
        previous = latest
        status["state"] = {"waiting": _waiting(track, pod)}
    if previous is not None and not previous.running:
        status["lastState"] = {"terminated": _terminated(previous)}
    return status


def _waiting(track: Track, pod: Pod) -> Document:
    if track.reason:
        waiting: Document = {"reason": track.reason}
        if track.message:
            waiting["message"] = track.message
        return waiting
    first = track.role is not Role.MAIN or not pod.spec.init_containers
    return {"reason": "ContainerCreating" if first else "PodInitializing"}


def _terminated(run: Run) -> Document:
    ended: Document = {
        "exitCode": run.exit_code,
        "reason": run.reason,
        "startedAt": timestamps.rfc3339(run.started_at),
        "containerID": container_id(run.id),
    }
    if run.finished_at is not None:
        ended["finishedAt"] = timestamps.rfc3339(run.finished_at)
    if run.signal:
        ended["signal"] = run.signal
    if run.message:
        ended["message"] = run.message
    return ended


def runs_of(pod: Pod) -> dict[str, list[Run]]:
    """The last runs as the status has them: for a pod whose runtime has forgotten it."""
    found: dict[str, list[Run]] = {}
    for item in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = item.state.terminated or item.last_state.terminated
        target = ContainerID(pod.metadata.uid, item.name, item.restart_count)
        if item.state.running is not None:
            started = _instant(item.state.running.started_at)
            found[item.name] = [Run(target, started)]
        elif ended is not None:
            found[item.name] = [
                Run(
                    target,
                    _instant(ended.started_at),
                    finished_at=_instant(ended.finished_at),
                    exit_code=ended.exit_code,
                    signal=ended.signal,
                    reason=ended.reason,
                    message=ended.message,
                )
            ]
    return found


def _instant(text: str | None) -> datetime:
    try:
        return timestamps.parse(text or "")
    except timestamps.TimestampError:
        return timestamps.from_seconds(0.0)


def qos_class(pod: Pod) -> str:
    """Guaranteed, Burstable or BestEffort, by Kubernetes' rules for CPU and memory."""
    everyone: list[Container] = [*pod.spec.init_containers, *pod.spec.containers]
    amounts = [
        (
            _positive(item.resources.requests.get(name, item.resources.limits.get(name, "0"))),
            _positive(item.resources.limits.get(name, "0")),
        )
        for item in everyone
        for name in ("cpu", "memory")
    ]
    if not any(request or limit for request, limit in amounts):
        return "BestEffort"
    if all(limit and request == limit for request, limit in amounts):
        return "Guaranteed"
    return "Burstable"


def _positive(amount: str | int | float) -> int:
    """Thousandths of an amount; zero for one that cannot be read (the server refuses those)."""
    try:
        return quantity.milli(amount)
    except quantity.QuantityError:
        return 0
