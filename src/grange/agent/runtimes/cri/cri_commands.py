"""Calls about running containers: commands in them, their limits, what they use."""

import math
from collections.abc import Mapping

from grange.agent.container_runtime import (
    EXIT_KILLED,
    EXIT_NOT_FOUND,
    CommandResult,
    ContainerLimits,
    ContainerUsage,
    RuntimeFailedError,
)
from grange.agent.runtimes.cri import cri_client, cri_requests, cri_status
from grange.agent.runtimes.cri.cri_client import CriClient, CriError
from grange.agent.runtimes.cri.cri_pod import CriAttempt

_MARGIN_S = 10.0


async def run(
    client: CriClient,
    attempt: CriAttempt,
    command: tuple[str, ...],
    timeout_s: float,
    output_bytes: int,
) -> CommandResult:
    """Run a command to its end; the interface counts whole seconds, so that it has one at least.

    Args:
        client: to the container runtime.
        attempt: a container that runs.
        command: program and arguments.
        timeout_s: after so long it is killed.
        output_bytes: how much of its output is kept.

    Raises:
        RuntimeFailedError: it could not be run at all.
    """
    limit_s = max(1, math.ceil(timeout_s))
    request = {"container_id": attempt.container_id, "cmd": list(command), "timeout": limit_s}
    try:
        answer = await client.call("ExecSync", request, limit_s + _MARGIN_S)
    except CriError as error:
        if error.code == cri_client.TIMED_OUT or "timed out" in error.message:
            return CommandResult(EXIT_KILLED, "", timed_out=True)
        code, message = cri_status.start_failure(command[0], error.message)
        if code == EXIT_NOT_FOUND and error.code != cri_client.NOT_FOUND:
            return CommandResult(code, message)
        raise RuntimeFailedError(
            f"{attempt.target}: the container runtime failed: {error.message}"
        ) from error
    output = answer.get("stdout", b"") + answer.get("stderr", b"")
    kept = output[:output_bytes].decode(errors="replace")
    return CommandResult(int(answer.get("exit_code", 0)), kept)


async def resize(
    client: CriClient, attempt: CriAttempt, limits: ContainerLimits, cpu_milli: int
) -> None:
    """Let a container have another weight and other limits.

    Raises:
        RuntimeFailedError: it cannot have them now.
    """
    resources = cri_requests.resources(cpu_milli, limits)
    request = {"container_id": attempt.container_id, "linux": resources}
    try:
        await client.call("UpdateContainerResources", request)
    except CriError as error:
        raise RuntimeFailedError(f"the container runtime failed: {error.message}") from error


async def usage(client: CriClient, labels: Mapping[str, str]) -> list[ContainerUsage]:
    """What the containers with these labels have used.

    Raises:
        RuntimeFailedError: the container runtime does not answer.
    """
    try:
        answer = await client.call(
            "ListContainerStats", {"filter": {"label_selector": dict(labels)}}
        )
    except CriError as error:
        raise RuntimeFailedError(
            f"usage of containers: the container runtime failed: {error.message}"
        ) from error
    found = []
    for item in answer.get("stats") or []:
        attributes = item.get("attributes") or {}
        target = cri_status.target_of(
            attributes.get("labels") or {}, attributes.get("metadata") or {}
        )
        found.append(cri_status.usage_of(target, item))
    return found
