"""Why pods are not available, for the message of a failed rollout.

The pods are gone after a rollback, so their message is copied.
"""

from collections.abc import Iterable

from grange.api.kinds.pod import ContainerStateTerminated, ContainerStatus, Pod

_LONGEST = 200  # characters; the message is part of a status, an event and an alert


def first_message(pods: Iterable[Pod]) -> str:
    """The message of the first pod, by name, that has one; empty for none."""
    for pod in sorted(pods, key=lambda item: item.metadata.name):
        if text := _message_of(pod):
            return f"{pod.metadata.name}: {text}"
    return ""


def _message_of(pod: Pod) -> str:
    status = pod.status
    for item in (*status.init_container_statuses, *status.container_statuses):
        if text := _of_container(item):
            return f"{item.name}: {_short(text)}"
    for kind in ("PodScheduled", "Ready"):
        for condition in status.conditions:
            if condition.type == kind and condition.status == "False" and condition.message:
                return _short(condition.message)
    return ""


def _short(text: str) -> str:
    """One line of it."""
    return " ".join(text.split())[:_LONGEST]


def _of_container(item: ContainerStatus) -> str:
    """Why it waits, by how it ended last where it did; nothing for one that runs or did its work."""
    waiting = item.state.waiting
    ended = item.state.terminated or (item.last_state.terminated if waiting else None)
    if ended is not None and (waiting is not None or ended.exit_code or ended.signal):
        return _ending(ended)
    return (waiting.message or waiting.reason) if waiting is not None else ""


def _ending(ended: ContainerStateTerminated) -> str:
    if ended.message:
        return ended.message
    how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    return f"ended with {how}"
