"""Commands in running containers."""

import math

from grange.agent.container_runtime import (
    EXIT_KILLED,
    EXIT_NOT_FOUND,
    CommandResult,
    RuntimeFailedError,
)
from grange.agent.runtimes.cri import cri_client, cri_status
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
