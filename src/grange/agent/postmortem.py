"""Why a container failed, from the last of its output: its own words, or a port that is taken."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from grange.agent.container_runtime import (
    ERROR,
    START_ERROR,
    ListeningSocket,
    LogQuery,
    PodRecord,
    PodRuntime,
    Run,
    RuntimeFailedError,
)
from grange.api.kinds.pod import Container

_LINES = 80  # as Kubernetes has it for FallbackToLogsOnError
_MESSAGE_BYTES = 2048
_FILE_BYTES = 4096  # as Kubernetes has it for the file at terminationMessagePath
_READ_BYTES = 64 * 1024
_TAKEN = re.compile(r"address (?:is )?already in use|EADDRINUSE|connection in use", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,5}")
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104  looked for, not listened on
_FALLBACK = "FallbackToLogsOnError"


def wants_output(container: Container) -> bool:
    """Whether the last of its output shall be its termination message."""
    return container.termination_message_policy == _FALLBACK


async def explain(
    runtime: PodRuntime, run: Run, container: Container, *, unasked: bool = True
) -> tuple[Run, str]:
    """The run with a message, where it or its output gives one, and the explanation of a port in use.

    Args:
        runtime: that ran it.
        run: that has ended.
        container: what was run.
        unasked: whether it ended without being asked to.

    Returns:
        The run, and the sentence about a port that is taken; empty for none.
    """
    left = await _message(runtime, run, container)
    if run.exit_code == 0 or run.reason != ERROR or not (unasked or wants_output(container)):
        return replace(run, message="\n".join(filter(None, (run.message, left)))), ""
    output = await _last_output(runtime, run)
    taken = ""
    if _TAKEN.search(output):
        try:
            listeners = await runtime.listeners()
        except (OSError, ValueError, RuntimeFailedError):
            listeners = []
        taken = port_taken(run, container, output, listeners, runtime.pods())
    words = left or (output[-_MESSAGE_BYTES:] if wants_output(container) else "")
    message = "\n".join(filter(None, (run.message, taken, words)))
    return replace(run, message=message), taken


async def _message(runtime: PodRuntime, run: Run, container: Container) -> str:
    path = container.termination_message_path
    if not path or run.reason == START_ERROR:
        return ""
    try:
        content = await runtime.read_message(run.id, path, _FILE_BYTES)
    except (OSError, RuntimeFailedError):
        return ""
    return (content or b"").decode(errors="replace")


async def _last_output(runtime: PodRuntime, run: Run) -> str:
    pieces: list[bytes] = []
    try:
        async for piece in runtime.logs.read(run.id, LogQuery(tail_lines=_LINES)):
            pieces = [b"".join([*pieces, piece])[-_READ_BYTES:]]
    except (OSError, RuntimeFailedError):
        return ""
    return b"".join(pieces).decode(errors="replace")


def port_taken(
    run: Run,
    container: Container,
    output: str,
    listeners: Sequence[ListeningSocket],
    pods: Iterable[PodRecord],
) -> str:
    """The explanation of an address in use: which pod holds it, and the remedy.

    Args:
        run: that failed.
        container: its ports, probes and command show which port it may have wanted.
        output: the last of what it wrote; ports are named there as well.
        listeners: of all pods.
        pods: for their names.
    """
    wanted = set(_ports(container, output))
    others = [
        item
        for item in listeners
        if item.port in wanted and (item.pod_uid, item.container) != run.id[:2]
    ]
    remedy = (
        "programs that listen on $(POD_IP) instead of 0.0.0.0 do not collide, "
        "as every pod has its own address; --network addresses of the agent gives it to all programs"
    )
    if not others:
        return f"address already in use; {remedy}"
    holder = min(others, key=lambda item: (item.address not in _ANY, item))
    if holder.pod_uid == run.id.pod_uid:
        name = f"container {holder.container} of this pod"
        remedy = "give the containers of a pod different ports"
    else:
        names = {item.sandbox.uid: f"{item.setup.namespace}/{item.setup.name}" for item in pods}
        name = f"pod {names.get(holder.pod_uid, holder.pod_uid)}"
    return (
        f"address already in use: port {holder.port} is held by {name}, which listens on "
        f"{holder.address}; {remedy}"
    )


def _ports(container: Container, output: str) -> Iterator[int]:
    """The ports that a program may have tried to listen on."""
    for port in container.ports:
        yield port.container_port
    lines = output.splitlines()
    for index, line in enumerate(lines):
        if _TAKEN.search(line):
            for near in lines[max(0, index - 5) : index + 2]:
                yield from (int(text) for text in _NUMBER.findall(near))
    for word in (*container.command, *container.args):
        yield from (int(text) for text in _NUMBER.findall(word))
    for probe in (container.startup_probe, container.readiness_probe, container.liveness_probe):
        for action in (probe.http_get, probe.tcp_socket) if probe is not None else ():
            if action is not None and isinstance(action.port, int):
                yield action.port
