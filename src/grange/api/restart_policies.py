"""Restart policies of pods: whether a container runs again after a run has ended; one line each."""

from collections.abc import Callable

RESTART_POLICIES: dict[str, Callable[[int, int], bool]] = {
    "Always": lambda attempt, exit_code: True,
    "OnFailure": lambda attempt, exit_code: exit_code != 0,
    "Never": lambda attempt, exit_code: False,
}
"""By the name in ``spec.restartPolicy``; from the number of earlier runs and the exit code."""


def restarts(policy: str, attempt: int, exit_code: int) -> bool:
    """Whether the policy starts another run; an unknown policy starts none.

    Args:
        policy: ``spec.restartPolicy``.
        attempt: how many runs there were before the one that ended.
        exit_code: how that one ended; 128 + the signal's number where a signal ended it.
    """
    wants_another = RESTART_POLICIES.get(policy)
    return wants_another is not None and wants_another(attempt, exit_code)
