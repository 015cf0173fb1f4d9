"""The status of a pod from what is known of its containers: pure."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grange.agent import transitions
from grange.agent.container_runtime import EXIT_KILLED, STATUS_UNKNOWN, ContainerID, Run
from grange.agent.lifecycle import ManagedContainer, PodTermination, Role
from grange.agent.resource_allocation import RESIZABLE
from grange.agent.transitions import ContainerPhase, PodPhase, PodPhaseEvent
from grange.api import conditions, interrupted_restarts, quantity, timestamps, unsupported
from grange.api.kinds.pod import DISRUPTION_TARGET, Container, ContainerStatus, Pod
from grange.api.meta import Condition, Document
from grange.api.pod_requests import RESIZE_IN_PROGRESS, RESIZE_PENDING
from grange.base import statemachine

_OF_RESIZE = frozenset({RESIZE_PENDING, RESIZE_IN_PROGRESS})
OWN_CONDITIONS = _OF_RESIZE | {
    "PodScheduled",
    "Initialized",
    "ContainersReady",
    "Ready",
    unsupported.CONDITION,
    interrupted_restarts.CONDITION,
}
"""The conditions of a pod that its agent writes."""

_FAILURES = frozenset({PodTermination.DEADLINE, PodTermination.EVICTED})
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where the pod runs.

    Attributes:
        host_ip: the machine's address.
        pod_ip: the pod's; empty while it has none.
        runtime: name of what runs the containers.
        fields_here: the fields of the pod that have no effect on this node, as a message.
        eviction: why the node evicts it; empty while it does not.
        resize: conditions of a resize that is not complete.
        interrupted_restarts: restarts that followed stops of the node, before this agent took over.
    """

    host_ip: str
    pod_ip: str = ""
    runtime: str = "process"
    fields_here: str = ""
    eviction: str = ""
    resize: tuple[Condition, ...] = ()
    interrupted_restarts: int = 0


_BY_AGENT = "TerminationByKubelet"
_STOPPED = "Terminated"  # as a kubelet states it of pods that end with their node
STOPPED_MESSAGE = "Pod was terminated because its node was stopped"
_FOREIGN_MESSAGE = "the runtime knows nothing of this container; how it ended is not known"


def container_id(run: Run, runtime: str) -> str:
    """``containerID`` of an attempt: the runtime's own name for it, or one of the node's runtime."""
    return run.runtime_id or f"{runtime}://{run.id}"


def phase_of(
    current: str, containers: Sequence[ManagedContainer], termination: PodTermination
) -> PodPhase:
    """The pod's phase; it never goes back.

    Args:
        current: the phase so far; empty for none.
        containers: the containers.
        termination: why the pod is coming to its end, if it is.
    """
    known = {item.value for item in PodPhase}
    phase = PodPhase(current) if current in known else PodPhase.PENDING
    event = _phase_event(containers, termination)
    if event is None or phase in transitions.FINISHED:
        return phase
    return statemachine.advance(transitions.POD, phase, event)


def _phase_event(
    containers: Sequence[ManagedContainer], termination: PodTermination
) -> PodPhaseEvent | None:
    mains = [container for container in containers if container.role is Role.MAIN]
    others = [item for item in containers if item.role in {Role.INIT, Role.MAIN}]
    # Sidecars included: a finished pod is one of which nothing runs any more.
    alive = any(container.phase in transitions.ALIVE for container in containers)
    if not alive and all(container.phase is ContainerPhase.DONE for container in mains):
        failed = (
            termination in _FAILURES
            or _interrupted(containers)
            or any(container.failed for container in others)
        )
        return PodPhaseEvent.FAILED if failed else PodPhaseEvent.SUCCEEDED
    return (
        PodPhaseEvent.STARTED if all(container.latest is not None for container in mains) else None
    )


def build(
    pod: Pod,
    containers: Sequence[ManagedContainer],
    place: PodPlace,
    troubles: Mapping[str, str],
    *,
    termination: PodTermination,
    now: datetime,
) -> Document:
    """The whole status that this agent is responsible for.

    Conditions of others are not part of it; times of conditions move only with their status.

    Args:
        pod: the newest object.
        containers: its containers.
        place: where it runs.
        troubles: container name to the message of its failing probe.
        termination: why the pod is coming to its end, if it is.
        now: wall time.
    """
    stamp = timestamps.rfc3339(now)
    phase = phase_of(pod.status.phase, containers, termination)
    was_stopped = phase is PodPhase.FAILED and _interrupted(containers)
    stopped = STOPPED_MESSAGE if was_stopped else ""
    status: Document = {
        "phase": phase.value,
        "hostIP": place.host_ip,
        "startTime": pod.status.start_time or stamp,
        "qosClass": qos_class(pod),
        "conditions": [
            *_conditions(pod, containers, troubles, phase, stamp, place),
            *_disruption_target(pod, place.eviction or stopped, stamp),
        ],
        "containerStatuses": [
            _container_status(container, pod, place.runtime)
            for container in containers
            if container.role is Role.MAIN
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _container_status(container, pod, place.runtime)
            for container in containers
            if container.role in {Role.INIT, Role.SIDECAR}
        ]
    if pod.spec.ephemeral_containers:
        status["ephemeralContainerStatuses"] = [
            _container_status(container, pod, place.runtime)
            for container in containers
            if container.role is Role.EPHEMERAL
        ]
    if place.pod_ip:
        status["podIP"] = place.pod_ip
        status["podIPs"] = [{"ip": place.pod_ip}]
        status["hostIPs"] = [{"ip": place.host_ip}]
    if termination in _FAILURES:
        status["reason"] = termination.value
        status["message"] = DEADLINE_MESSAGE if place.eviction == "" else place.eviction
    elif stopped:
        status["reason"], status["message"] = _STOPPED, stopped
    return status


def _interrupted(containers: Sequence[ManagedContainer]) -> bool:
    """Whether containers ended for good because their node was stopped, whatever their exit codes."""
    return any(
        container.phase is ContainerPhase.DONE
        and container.latest is not None
        and container.latest.interrupted
        for container in containers
        if container.role in {Role.INIT, Role.MAIN}
    )


def _disruption_target(pod: Pod, why: str, stamp: str) -> list[Document]:
    if not why:
        return []
    wanted = Condition(DISRUPTION_TARGET, "True", _BY_AGENT, why)
    marked = conditions.set_condition(pod.status.conditions, wanted, stamp)
    return [msgspec.to_builtins(item) for item in marked if item.type == DISRUPTION_TARGET]


def rejected(pod: Pod, reason: str, message: str, *, host_ip: str, now: datetime) -> Document:
    """The status of a pod that the node does not take."""
    stamp = timestamps.rfc3339(now)
    return {
        "phase": PodPhase.FAILED.value,
        "reason": reason,
        "message": message,
        "hostIP": host_ip,
        "startTime": pod.status.start_time or stamp,
        "qosClass": qos_class(pod),
    }


def _conditions(
    pod: Pod,
    containers: Sequence[ManagedContainer],
    troubles: Mapping[str, str],
    phase: PodPhase,
    stamp: str,
    place: PodPlace,
) -> list[Document]:
    serving = [item for item in containers if item.role in {Role.SIDECAR, Role.MAIN}]
    inits = [container for container in containers if container.role is Role.INIT]
    resized = {item.type for item in place.resize}
    result = tuple(
        item
        for item in pod.status.conditions
        if item.type not in _OF_RESIZE or item.type in resized
    )
    for item in place.resize:
        result = conditions.set_condition(result, item, stamp)
    if conditions.find(result, "PodScheduled") is None:
        result = conditions.set_condition(result, Condition("PodScheduled", "True"), stamp)
    incomplete = [container.name for container in inits if not container.succeeded]
    result = conditions.set_condition(result, _initialized(incomplete, phase), stamp)
    containers_ready = _containers_ready(serving, troubles, phase)
    for wanted in (containers_ready, _ready(containers_ready, pod)):
        if _has_restarted(conditions.find(result, wanted.type), serving, stamp):
            result = tuple(item for item in result if item.type != wanted.type)
        result = conditions.set_condition(result, wanted, stamp)
    known = conditions.find(result, unsupported.CONDITION)
    message = unsupported.message_on_node(known.message if known else "", place.fields_here)
    if message:
        unheeded = Condition(unsupported.CONDITION, "True", unsupported.REASON, message)
        result = conditions.set_condition(result, unheeded, stamp)
    interrupted = sum(container.interrupted_restarts for container in containers)
    if interrupted + place.interrupted_restarts:
        after_stops = interrupted_restarts.condition(interrupted + place.interrupted_restarts)
        result = conditions.set_condition(result, after_stops, stamp)
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
    """Why a readiness gate keeps the pod from being ready, in Kubernetes' words; else empty."""
    found = conditions.find(pod.status.conditions, gate)
    if found is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    if found.status != "True":
        return f'the status of pod readiness gate "{gate}" is not "True", but {found.status}'
    return ""


def _has_restarted(
    known: Condition | None, serving: Sequence[ManagedContainer], stamp: str
) -> bool:
    """Whether a container began after the time since which the condition is True.

    It ended and began again while no agent ran, or while nothing could be written: the pod was
    not ready in between.
    """
    if known is None or known.status != "True" or not known.last_transition_time:
        return False
    begun = [
        timestamps.rfc3339(container.latest.started_at) for container in serving if container.latest
    ]
    return any(known.last_transition_time < since <= stamp for since in begun)


def _initialized(incomplete: Sequence[str], phase: PodPhase) -> Condition:
    if not incomplete:
        reason = "PodCompleted" if phase is PodPhase.SUCCEEDED else ""
        return Condition("Initialized", "True", reason)
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return Condition("Initialized", "False", "ContainersNotInitialized", message)


def _containers_ready(
    serving: Sequence[ManagedContainer], troubles: Mapping[str, str], phase: PodPhase
) -> Condition:
    if phase is PodPhase.SUCCEEDED:
        return Condition("ContainersReady", "False", "PodCompleted")
    if phase is PodPhase.FAILED:
        return Condition("ContainersReady", "False", "PodFailed")
    unready = [container.name for container in serving if not container.ready]
    if not unready:
        return Condition("ContainersReady", "True")
    message = f"containers with unready status: [{' '.join(unready)}]"
    blocked = {
        container.name: container.message
        for container in serving
        if container.phase is ContainerPhase.BLOCKED
    }
    causes = {**blocked, **troubles}
    details = [f"{name}: {causes[name]}" for name in unready if causes.get(name)]
    return Condition(
        "ContainersReady", "False", "ContainersNotReady", "; ".join([message, *details])
    )


def _container_status(container: ManagedContainer, pod: Pod, runtime: str) -> Document:
    latest, previous = container.latest, container.previous
    status: Document = {
        "name": container.name,
        "image": container.spec.image,
        "imageID": latest.image_id if latest is not None else "",
        "ready": container.ready,
        "started": container.started,
        "restartCount": latest.id.attempt if latest is not None else container.attempt,
        "lastState": {},
    }
    lifecycle = container.spec.lifecycle
    if lifecycle is not None and lifecycle.stop_signal:
        status["stopSignal"] = lifecycle.stop_signal
    if container.role in RESIZABLE:
        status |= _resources(container)
    if latest is not None:
        status["containerID"] = container_id(latest, runtime)
    if container.phase in transitions.ALIVE and latest is not None:
        status["state"] = {"running": {"startedAt": timestamps.rfc3339(latest.started_at)}}
    elif container.phase is ContainerPhase.DONE and latest is not None:
        status["state"] = {"terminated": _terminated(latest, runtime)}
    else:
        previous = latest
        status["state"] = {"waiting": _waiting(container, pod)}
    if previous is not None and not previous.running:
        status["lastState"] = {"terminated": _terminated(previous, runtime)}
    return status


def _resources(container: ManagedContainer) -> Document:
    """What the node has allocated, and what a container that runs has."""
    allocated = container.spec.resources
    runs = container.phase in transitions.ALIVE
    actual = container.applied if runs and container.applied is not None else allocated
    parts = {"requests": actual.requests, "limits": actual.limits}
    found: Document = {"resources": {name: part for name, part in parts.items() if part}}
    if allocated.requests:
        found["allocatedResources"] = allocated.requests
    return found


def _waiting(container: ManagedContainer, pod: Pod) -> Document:
    if container.reason:
        waiting: Document = {"reason": container.reason}
        if container.message:
            waiting["message"] = container.message
        return waiting
    first = container.role is not Role.MAIN or not pod.spec.init_containers
    return {"reason": "ContainerCreating" if first else "PodInitializing"}


def _terminated(run: Run, runtime: str) -> Document:
    ended: Document = {
        "exitCode": run.exit_code,
        "reason": run.reason,
        "startedAt": timestamps.rfc3339(run.started_at),
        "containerID": container_id(run, runtime),
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
    for item in _statuses(pod):
        ended = item.state.terminated or item.last_state.terminated
        target = ContainerID(pod.metadata.uid, item.name, item.restart_count)
        if item.state.running is not None:
            started = _instant(item.state.running.started_at)
            found[item.name] = [Run(target, started, runtime_id=item.container_id)]
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
                    runtime_id=ended.container_id,
                )
            ]
    return found


def lost(run: Run, now: datetime) -> Run:
    """A run that the status records and the runtime does not know: it has ended, if it had not."""
    if not run.running:
        return run
    return Run(
        run.id,
        run.started_at,
        finished_at=now,
        exit_code=EXIT_KILLED,
        signal=signal.SIGKILL,
        reason=STATUS_UNKNOWN,
        message=_FOREIGN_MESSAGE,
        runtime_id=run.runtime_id,
    )


def messages_of(pod: Pod) -> dict[str, str]:
    """By ``containerID``, the messages of runs in the status; only an earlier agent knew these runs."""
    ended = (state.terminated for item in _statuses(pod) for state in (item.state, item.last_state))
    return {run.container_id: run.message for run in ended if run is not None and run.message}


def _statuses(pod: Pod) -> Iterator[ContainerStatus]:
    status = pod.status
    yield from status.init_container_statuses
    yield from status.container_statuses
    yield from status.ephemeral_container_statuses


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
