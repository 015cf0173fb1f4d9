"""A pod's line in a table: how many containers are ready, what it is doing, how often it restarted.

STATUS is the phase, overridden in turn by the pod's reason, by the first init container that is
not through, by the containers (the first one speaks last) and by a deletion under way.
"""

from dataclasses import dataclass
from typing import Any

from grange.api import timestamps
from grange.api.meta import Document
from grange.api.printing.cells import NONE, Cell

_UNREACHABLE = "NodeLost"


@dataclass(slots=True)
class _Summary:
    """What is gathered on the way through a pod's container statuses."""

    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0
    restarted_at: str = ""
    running: bool = False

    def count_restarts(self, status: dict[str, Any]) -> None:
        self.restarts += status.get("restartCount") or 0
        finished = _state(status, "terminated", "lastState").get("finishedAt") or ""
        self.restarted_at = max(self.restarted_at, finished)


def summarize(pod: Document) -> _Summary:
    """Ready and total containers, reason, restarts and when the last restart was."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    summary = _Summary(reason=status.get("reason") or status.get("phase") or "Unknown")
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        summary.reason = "SchedulingGated"
    sidecars = {
        item.get("name")
        for item in spec.get("initContainers") or ()
        if item.get("restartPolicy") == "Always"
    }
    summary.total = len(spec.get("containers") or ()) + len(sidecars)
    before = _Summary(reason="")
    initializing = _initialize(pod, sidecars, summary, before)
    if not initializing or (conditions.get("Initialized") or {}).get("status") == "True":
        summary.restarts, summary.restarted_at = before.restarts, before.restarted_at
        _run(status, summary)
        if summary.reason == "Completed" and summary.running:
            ready = (conditions.get("Ready") or {}).get("status") == "True"
            summary.reason = "Running" if ready else "NotReady"
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == _UNREACHABLE:
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _initialize(
    pod: Document, sidecars: set[Any], summary: _Summary, sidecar_summary: _Summary
) -> bool:
    """Go through the init containers up to the first that is not through; whether there is one."""
    init_total = len((pod.get("spec") or {}).get("initContainers") or ())
    for index, item in enumerate((pod.get("status") or {}).get("initContainerStatuses") or ()):
        summary.count_restarts(item)
        sidecar = item.get("name") in sidecars
        if sidecar:
            sidecar_summary.count_restarts(item)
        terminated = _state(item, "terminated")
        waiting = _state(item, "waiting").get("reason") or ""
        if _has(item, "terminated") and not terminated.get("exitCode"):
            continue
        if sidecar and item.get("started"):
            summary.ready += bool(item.get("ready"))
            continue
        if _has(item, "terminated"):
            summary.reason = f"Init:{_ending(terminated)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{index}/{init_total}"
        return True
    return False


def _run(status: Document, summary: _Summary) -> None:
    for item in reversed(status.get("containerStatuses") or ()):
        summary.count_restarts(item)
        waiting = _state(item, "waiting").get("reason")
        if waiting:
            summary.reason = waiting
        elif _has(item, "terminated"):
            summary.reason = _ending(_state(item, "terminated"))
        elif item.get("ready") and _has(item, "running"):
            summary.running = True
            summary.ready += 1


def _has(status: dict[str, Any], which: str) -> bool:
    return isinstance((status.get("state") or {}).get(which), dict)


def _state(status: dict[str, Any], which: str, field: str = "state") -> dict[str, Any]:
    return (status.get(field) or {}).get(which) or {}


def _ending(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def ready(pod: Document, now: float) -> Cell:
    """READY: ``1/2``."""
    summary = summarize(pod)
    return f"{summary.ready}/{summary.total}"


def status(pod: Document, now: float) -> Cell:
    """STATUS: Running, CrashLoopBackOff, Init:0/1, Terminating and so on."""
    return summarize(pod).reason


def restarts(pod: Document, now: float) -> Cell:
    """RESTARTS: ``3 (5m ago)``."""
    summary = summarize(pod)
    if summary.restarts and summary.restarted_at:
        try:
            since = now - timestamps.parse(summary.restarted_at).timestamp()
        except timestamps.TimestampError:
            return str(summary.restarts)
        return f"{summary.restarts} ({timestamps.age(since)} ago)"
    return str(summary.restarts)


def readiness_gates(pod: Document, now: float) -> Cell:
    """READINESS GATES: how many of the pod's gates are open."""
    gates = [
        gate.get("conditionType") for gate in (pod.get("spec") or {}).get("readinessGates") or ()
    ]
    if not gates:
        return NONE
    held = {
        item.get("type")
        for item in (pod.get("status") or {}).get("conditions") or ()
        if item.get("status") == "True"
    }
    return f"{sum(gate in held for gate in gates)}/{len(gates)}"
