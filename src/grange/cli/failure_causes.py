"""Why a pod is not ready, from its own status: pure functions.

A cause is how a container's last run ended, the message of its waiting state or of a failing probe,
or why no node was found. A run that ended before the pod was last ready is no cause.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from grange.api import timestamps
from grange.api.meta import Document
from grange.api.timestamps import TimestampError

CRASH_LOOP = "CrashLoopBackOff"
START_ERROR = "StartError"
OOM_KILLED = "OOMKilled"
RESTARTS = 4
"""So many restarts make a crash loop: fewer happen while a program waits for another one."""
PORT_RESTARTS = 2
"""The same for a program whose address is in use: the second restart comes a second after the first."""
RESET_S = 600.0  # after a run of this length the agent restarts at once again
_ADDRESS_IN_USE = "address already in use"
_UNREADY = "containers with unready status"
_NEVER = frozenset({"ErrImageNeverPull", "ImageRuntimeUnavailable", "InvalidImageName"})
_LIMIT = "memoryLimit"
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Why a pod is not ready.

    Attributes:
        container: name of the container; empty for the pod as a whole.
        text: what to show.
        ended: a run of the container ended without a message; its output may explain it.
        previous: that run is the one before the present one.
        final: waiting longer is useless.
    """

    container: str
    text: str
    ended: bool = False
    previous: bool = False
    final: bool = False

    def __str__(self) -> str:
        return self.with_output("") + ("; see its log" if self.ended else "")

    @property
    def is_address_in_use(self) -> bool:
        """Whether the program could not listen on its address."""
        return _ADDRESS_IN_USE in self.text.lower()

    @property
    def is_starting(self) -> bool:
        """Whether nothing is wrong yet: the container is being created."""
        return self.text in _STARTING

    @property
    def is_vague(self) -> bool:
        """Whether it names no reason beyond not being ready."""
        return self.text.startswith(_UNREADY)

    def with_output(self, line: str) -> str:
        """The text, with the last line of the container's output where there is one."""
        text = f"{self.text}: {line}" if line else self.text
        return f"{self.container}: {text}" if self.container else text


def of_pod(pod: Document) -> FailureCause | None:
    """Why the pod is not ready; None where its status has no cause."""
    ready = condition(pod, "Ready") or {}
    since = ready.get("lastTransitionTime") if ready.get("status") == "False" else None
    found = [cause for item in _containers(pod) if (cause := _of_container(item, since))]
    if found:
        return max(found, key=lambda cause: (cause.final, not cause.is_starting))
    scheduled = condition(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return FailureCause("", str(scheduled.get("message") or "unschedulable"))
    if ready.get("status") == "False" and (message := str(ready.get("message") or "")):
        return FailureCause("", message.partition("; ")[2] or message)
    return None


def of_restart(pod: Document, now: datetime) -> tuple[FailureCause, int] | None:
    """Why a container that is ready was restarted, and how often; None where none was lately.

    A run of ``RESET_S`` ends a series of restarts: the agent, too, forgets what was before.
    """
    for item in _containers(pod):
        running = (item.get("state") or {}).get("running")
        last = (item.get("lastState") or {}).get("terminated") or {}
        if not running or (cause := _end(item, last)) is None:
            continue
        started = timestamps.parse_or(running.get("startedAt"), now)
        if (now - started).total_seconds() < RESET_S:
            return replace(cause, previous=True), int(item.get("restartCount") or 0)
    return None


def condition(document: Document, kind: str) -> Document | None:
    """The condition of this type, if it is there."""
    for item in (document.get("status") or {}).get("conditions") or []:
        if item.get("type") == kind:
            found: Document = item
            return found
    return None


def _containers(pod: Document) -> Iterator[Document]:
    """The status of each container, with its memory limit as ``memoryLimit`` where it has one."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        limits = {
            item.get("name"): ((item.get("resources") or {}).get("limits") or {}).get("memory")
            for item in spec.get(field.replace("Statuses", "s")) or ()
        }
        for item in status.get(field) or ():
            yield {**item, _LIMIT: limits.get(item.get("name"))}


def _of_container(item: Document, since: str | None) -> FailureCause | None:
    state = item.get("state") or {}
    last = (item.get("lastState") or {}).get("terminated") or {}
    if (ended := state.get("terminated")) is not None:
        return _end(item, ended) if ended.get("exitCode") or ended.get("signal") else None
    if (waiting := state.get("waiting")) is None:  # it runs, or its status is not there yet
        cause = None if item.get("ready") or _is_before(last, since) else _end(item, last)
        return replace(cause, previous=True) if cause is not None else None
    reason = str(waiting.get("reason") or "")
    if reason in {"", CRASH_LOOP, *_STARTING} and (cause := _end(item, last)) is not None:
        return cause
    text = str(waiting.get("message") or reason or "waiting")
    return FailureCause(str(item.get("name", "")), text, final=reason in _NEVER)


def _end(item: Document, ended: Document) -> FailureCause | None:
    """How a run ended; None where there was none."""
    name, final = str(item.get("name", "")), _is_crash_loop(item, ended)
    if ended.get("reason") == OOM_KILLED:
        return FailureCause(name, _out_of_memory(item.get(_LIMIT)), final=final)
    if message := " ".join(str(ended.get("message") or "").split()):
        return FailureCause(name, message, final=final)
    if number := ended.get("signal"):
        return FailureCause(name, f"ended by {_signal_name(int(number))}", ended=True, final=final)
    if (code := ended.get("exitCode")) is not None:
        return FailureCause(name, f"ended with exit code {code}", ended=True, final=final)
    return None


def _out_of_memory(limit: object) -> str:
    if limit:
        return f"{OOM_KILLED}: over its memory limit of {limit}; raise resources.limits.memory"
    return f"{OOM_KILLED}: memory ran out, and the container has no limit"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_crash_loop(item: Document, ended: Document) -> bool:
    waiting = (item.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") != CRASH_LOOP:
        return False
    restarts = int(item.get("restartCount") or 0)
    if ended.get("reason") == START_ERROR:  # no program that comes up elsewhere changes this
        return restarts >= 1
    if _ADDRESS_IN_USE in str(ended.get("message") or "").lower():
        return restarts >= PORT_RESTARTS
    return restarts >= RESTARTS and _length_s(ended) < RESET_S


def _length_s(ended: Document) -> float:
    try:
        begun, over = (timestamps.parse(str(ended.get(key))) for key in ("startedAt", "finishedAt"))
    except TimestampError:
        return 0.0
    return (over - begun).total_seconds()


def _is_before(ended: Document, since: str | None) -> bool:
    try:
        return timestamps.parse(str(ended.get("finishedAt"))) < timestamps.parse(str(since))
    except TimestampError:
        return False
