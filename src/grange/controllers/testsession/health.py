"""What the status of a pod means for its session: one pure function, a table read from the top.

The first row that applies is the diagnosis:

==  =============================================================  ==========
 1  ended before its deletion was requested, or is not deleted:    as rows 3-9
    otherwise deleted or being deleted                             Failed
 2  phase Failed by the node: evicted, preempted, not admitted     Failed
 3  main container: last termination with exit code 0              Succeeded
 4  the same with another exit code                                Failed
 5  phase Succeeded or Failed                                      as the phase
 6  an init container that is not retried has failed               Failed
 7  a container waits: CrashLoopBackOff                            Failed
 8  a container waits for what it cannot get (image,               Failed
    configuration), for longer than a grace; Unknown until then
 9  main container runs: Ready, or as the pod's Ready condition    Ready or
    where a container has a probe or the pod a readiness gate      NotReady
10  main container has no status: not scheduled, not started       NotReady
11  anything else                                                  Unknown
==  =============================================================  ==========

The main container is the one named ``main``, or else the first; others do not end the component.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from grange.api import timestamps
from grange.api.kinds.pod import (
    Container,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    condition,
    is_disruption_target,
    is_ready,
)

MAIN_CONTAINER = "main"
"""The container whose end is the end of its component."""

WAITING_GRACE_S = 30.0
"""Seconds from scheduling in which an image or configuration that is missing may still appear."""

_CRASH_LOOP = "CrashLoopBackOff"
_NOT_CREATABLE = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"),
        *("ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
        *("ImageRuntimeUnavailable", "CreateContainerConfigError", "CreateContainerError"),
        *("RunContainerError", "PreCreateHookError", "PreStartHookError"),
    }
)
# Terminations that happened although no program of the user ran to its end.
_NOT_RUN = frozenset({"StartError", "ContainerCannotRun", "ContainerStatusUnknown"})
_BY_USER = frozenset({"DeadlineExceeded"})  # reasons of a failed pod that its spec asked for


class Health(IntEnum):
    """The availability of a component; ``str`` gives the name as in a status: ``NotReady``."""

    UNKNOWN = 0
    READY = 1
    NOT_READY = 2
    SUCCEEDED = 3
    FAILED = 4

    def __str__(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_terminal(self) -> bool:
        """Whether the component has ended and no later health may replace this one."""
        return self >= Health.SUCCEEDED


@dataclass(frozen=True, slots=True)
class PodDiagnosis:
    """How a pod stands.

    Attributes:
        message: why, where the health is neither Ready nor Succeeded.
        exit_code: of the container that ended; None where the pod failed without one.
        container: whose state decided; its log explains the outcome. Empty for the pod as a whole.
        is_infrastructure: it failed because of the machine, the image or a deletion, so that the
            result does not reflect the program.
        recheck_at: when the diagnosis changes although the pod does not.
    """

    health: Health
    message: str = ""
    exit_code: int | None = None
    container: str = ""
    is_infrastructure: bool = False
    recheck_at: datetime | None = None


def diagnose(pod: Pod, now: datetime, *, deleted: bool = False) -> PodDiagnosis:
    """How the pod stands; see the table of this module.

    Args:
        pod: as read last.
        now: against which the grace of missing images is measured.
        deleted: the pod is gone, and ``pod`` is its last state.
    """
    deleting = deleted or pod.metadata.deletion_timestamp is not None
    if deleting and not _ended_before_deletion(pod):
        return _failed_pod(_deletion_message(pod, deleted=deleted))
    if pod.status.phase == "Failed" and (why := _failed_by_node(pod)):
        return _failed_pod(why)
    if (ended := _last_termination(_main_status(pod))) is not None:
        return _ended(ended, main_container(pod))
    if pod.status.phase == "Succeeded":
        return PodDiagnosis(Health.SUCCEEDED, exit_code=0)
    if pod.status.phase == "Failed":
        why = _joined(pod.status.reason, pod.status.message)
        return PodDiagnosis(
            Health.FAILED,
            why or "the pod failed without a status of its main container",
            is_infrastructure=pod.status.reason not in _BY_USER,
        )
    return _unfinished(pod, now)


def main_container(pod: Pod) -> str:
    """Name of the container that decides: ``main``, or else the first."""
    found = [item.name for item in pod.spec.containers]
    return MAIN_CONTAINER if MAIN_CONTAINER in found or not found else found[0]


def _unfinished(pod: Pod, now: datetime) -> PodDiagnosis:
    for status in _init_statuses(pod):
        ended = status.state.terminated
        if ended is not None and ended.exit_code and pod.spec.restart_policy == "Never":
            return _ended(ended, status.name)
    main = _main_status(pod)
    waiting = [*_init_statuses(pod), *((main,) if main else ())]
    for status in waiting:
        if (found := _waiting(status, pod, now)) is not None:
            return found
    if main is None:
        return PodDiagnosis(Health.NOT_READY, _not_started(pod))
    if main.state.running is not None:
        return _running(pod)
    wait = main.state.waiting
    why = _joined(wait.reason, wait.message) if wait else ""
    return PodDiagnosis(Health.UNKNOWN, why)


def _waiting(status: ContainerStatus, pod: Pod, now: datetime) -> PodDiagnosis | None:
    """The diagnosis of a container that waits in vain; None where it does not."""
    wait = status.state.waiting
    if wait is None:
        return None
    message = f"container {status.name}: {_joined(wait.reason, wait.message)}"
    if wait.reason == _CRASH_LOOP:
        last = status.last_state.terminated
        code = last.exit_code if last is not None else None
        return PodDiagnosis(Health.FAILED, message, exit_code=code, container=status.name)
    if wait.reason not in _NOT_CREATABLE:
        return None
    due = timestamps.shift(_scheduled_at(pod, now), WAITING_GRACE_S)
    if now >= due:
        return _failed_pod(message)
    return PodDiagnosis(Health.UNKNOWN, message, recheck_at=due)


def _running(pod: Pod) -> PodDiagnosis:
    if is_ready(pod) or not _has_probe(pod):
        return PodDiagnosis(Health.READY)
    state = condition(pod, "Ready")
    why = _joined(state.reason, state.message) if state is not None else ""
    return PodDiagnosis(Health.NOT_READY, why or "the pod's Ready condition is not set yet")


def _has_probe(pod: Pod) -> bool:
    def probed(item: Container) -> bool:
        return item.readiness_probe is not None or item.startup_probe is not None

    sidecars = (item for item in pod.spec.init_containers if item.restart_policy == "Always")
    return bool(pod.spec.readiness_gates) or any(map(probed, (*pod.spec.containers, *sidecars)))


def _ended(ended: ContainerStateTerminated, container: str) -> PodDiagnosis:
    if ended.exit_code == 0:
        return PodDiagnosis(Health.SUCCEEDED, exit_code=0, container=container)
    code = f"exit code {ended.exit_code}"
    reason = f"{code} ({ended.reason})" if ended.reason not in ("", "Error") else code
    return PodDiagnosis(
        Health.FAILED,
        f"container {container}: {_joined(reason, ended.message)}",
        exit_code=ended.exit_code,
        container=container,
        is_infrastructure=ended.reason in _NOT_RUN,
    )


def _failed_pod(message: str) -> PodDiagnosis:
    return PodDiagnosis(Health.FAILED, message, is_infrastructure=True)


def _failed_by_node(pod: Pod) -> str:
    """Why the node or the control plane failed the pod; empty where its containers ended it."""
    if pod.status.reason and pod.status.reason not in _BY_USER:
        return _joined(pod.status.reason, pod.status.message)
    if is_disruption_target(pod):
        mark = condition(pod, "DisruptionTarget")
        return _joined(mark.reason, mark.message) if mark is not None else ""
    return ""


def _deletion_message(pod: Pod, *, deleted: bool) -> str:
    what = "the pod was deleted" if deleted else "the pod is being deleted"
    mark = condition(pod, "DisruptionTarget") if is_disruption_target(pod) else None
    return f"{what}: {_joined(mark.reason, mark.message)}" if mark is not None else what


def _ended_before_deletion(pod: Pod) -> bool:
    """Whether the main container ended by itself, so that the deletion has no influence on it."""
    status = _main_status(pod)
    ended = _last_termination(status)
    if status is None or ended is None:
        return False
    asked = _instant(pod.metadata.deletion_timestamp)
    if asked is None:
        return True
    finished = _instant(ended.finished_at)
    asked -= timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return finished is not None and finished < asked


def _last_termination(status: ContainerStatus | None) -> ContainerStateTerminated | None:
    """The last run that ended: also that of a container that runs again."""
    if status is None:
        return None
    return status.last_state.terminated or status.state.terminated


def _main_status(pod: Pod) -> ContainerStatus | None:
    name = main_container(pod)
    for status in pod.status.container_statuses:
        if status.name == name:
            return status
    return None


def _init_statuses(pod: Pod) -> Iterator[ContainerStatus]:
    """Of the init containers that run to their end; sidecars are restarted and are not among them."""
    sidecars = {item.name for item in pod.spec.init_containers if item.restart_policy == "Always"}
    return (item for item in pod.status.init_container_statuses if item.name not in sidecars)


def _not_started(pod: Pod) -> str:
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return _joined(scheduled.reason, scheduled.message)
    if not pod.spec.node_name:
        return "the pod is not scheduled yet"
    return f"container {main_container(pod)} has no status yet"


def _scheduled_at(pod: Pod, now: datetime) -> datetime:
    scheduled = condition(pod, "PodScheduled")
    known = scheduled.last_transition_time if scheduled and scheduled.status == "True" else None
    instants = (known, pod.status.start_time, pod.metadata.creation_timestamp)
    return next((found for text in instants if (found := _instant(text)) is not None), now)


def _instant(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return timestamps.parse(text)
    except timestamps.TimestampError:
        return None


def _joined(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message
