"""Restart policies: whether a container runs again after a run has ended; one line each."""

from collections.abc import Callable

from grange.agent.container_runtime import Run

RESTART_POLICIES: dict[str, Callable[[Run], bool]] = {
    "Always": lambda run: True,
    "OnFailure": lambda run: run.exit_code != 0,
    "Never": lambda run: False,
}
"""By the name in ``spec.restartPolicy``; the API's validation has its own list of names."""


def restarts(policy: str, run: Run) -> bool:
    """Whether the policy wants another run after this one; an unknown policy wants none."""
    wants_another = RESTART_POLICIES.get(policy)
    return wants_another is not None and wants_another(run)
