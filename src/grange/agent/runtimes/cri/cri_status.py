"""What a container runtime reports, as runs; pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from grange.agent.container_runtime import (
    COMPLETED,
    ERROR,
    EXIT_KILLED,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    START_ERROR,
    STATUS_UNKNOWN,
    ContainerID,
    ContainerUsage,
    Run,
)
from grange.agent.runtimes.cri import cri_requests

CREATED, RUNNING, EXITED = 0, 1, 2
OOM_KILLED = "OOMKilled"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNALED, _SIGNALS = 128, 64
_LOST_CODE = 255  # what containerd reports when it does not know
_NOT_FOUND = ("executable file not found", "no such file or directory", "file name too long")
_MESSAGE_MAX = 1024


def target_of(labels: Mapping[str, str], metadata: Mapping[str, Any]) -> ContainerID:
    """Which attempt a container of the runtime is."""
    return ContainerID(
        labels.get(cri_requests.POD_UID, ""),
        labels.get(cri_requests.CONTAINER, ""),
        int(metadata.get("attempt", 0)),
    )


def instant(nanoseconds: int) -> datetime:
    """A time of the runtime, to the microsecond."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def run_of(target: ContainerID, status: Mapping[str, Any], runtime_name: str) -> Run:
    """The run that a container's status describes.

    Args:
        target: which attempt.
        status: of the container.
        runtime_name: the scheme of its ID.
    """
    created = int(status.get("created_at", 0))
    started = instant(int(status.get("started_at", 0)) or created)
    identity = f"{runtime_name}://{status.get('id', '')}"
    image_id = str(status.get("image_ref", ""))
    state = int(status.get("state", 0))
    if state in {CREATED, RUNNING}:
        return Run(target, started, runtime_id=identity, image_id=image_id)
    reason, code = str(status.get("reason", "")), int(status.get("exit_code", 0))
    finished = max(started, instant(int(status.get("finished_at", 0)) or created))
    message = str(status.get("message", ""))
    if reason == START_ERROR:
        annotations: Mapping[str, str] = status.get("annotations") or {}
        hidden = annotations.get(cri_requests.EXPANDED) == "true"
        code, message = start_failure(
            annotations.get(cri_requests.PROGRAM, ""), message, is_hidden=hidden
        )
    elif state != EXITED or (reason == "Unknown" and code == _LOST_CODE):
        code, reason = EXIT_KILLED, STATUS_UNKNOWN
    elif reason != OOM_KILLED:
        reason = COMPLETED if code == 0 else ERROR
    return Run(
        target,
        started,
        finished_at=finished,
        exit_code=code,
        signal=code - _SIGNALED if _SIGNALED < code <= _SIGNALED + _SIGNALS else 0,
        reason=reason,
        message=message[:_MESSAGE_MAX],
        runtime_id=identity,
        image_id=image_id,
    )


def start_failure(program: str, detail: str, *, is_hidden: bool = False) -> tuple[int, str]:
    """Exit code and message of a program that could not be executed.

    Args:
        program: as messages may have it.
        detail: the runtime's message.
        is_hidden: it shows what ``$(NAME)`` stands for, which may be a secret.
    """
    if "exec:" in detail and any(text in detail for text in _NOT_FOUND):
        return EXIT_NOT_FOUND, f'program "{program}" not found: the image has no such program'
    if "permission denied" in detail or "exec format error" in detail:
        why = "permission denied" if "permission denied" in detail else "exec format error"
        return EXIT_NOT_EXECUTABLE, f'program "{program}" cannot be executed: {why}'
    why = "" if is_hidden else f": {detail}"
    return EXIT_NOT_EXECUTABLE, f'program "{program}" cannot be started{why}'


def usage_of(target: ContainerID, stats: Mapping[str, Any]) -> ContainerUsage:
    """What a container has used, from its statistics."""
    cpu = ((stats.get("cpu") or {}).get("usage_core_nano_seconds") or {}).get("value", 0)
    memory = ((stats.get("memory") or {}).get("working_set_bytes") or {}).get("value", 0)
    return ContainerUsage(target, int(cpu) / 1e9, int(memory))


def lost(target: ContainerID, known: Run | None, now: datetime) -> Run:
    """The run of a container that the runtime does not know any more."""
    return Run(
        target,
        known.started_at if known is not None else now,
        finished_at=now,
        exit_code=EXIT_KILLED,
        signal=EXIT_KILLED - _SIGNALED,
        reason=STATUS_UNKNOWN,
        message="the container runtime does not know the container any more",
        runtime_id=known.runtime_id if known is not None else "",
        image_id=known.image_id if known is not None else "",
    )
