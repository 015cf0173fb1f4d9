"""Restart policies of pods: whether a container runs again after a run has ended; one line each."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

RESTART_POLICIES: dict[str, Callable[[int, int], bool]] = {
    "Always": lambda attempt, exit_code: True,
    "OnFailure": lambda attempt, exit_code: exit_code != 0,
    "Never": lambda attempt, exit_code: False,
}
"""By the name in ``spec.restartPolicy``; from the number of earlier runs and the exit code."""

EXIT_CODE_OPERATORS: dict[str, Callable[[int, Iterable[int]], bool]] = {
    "In": lambda exit_code, values: exit_code in values,
    "NotIn": lambda exit_code, values: exit_code not in values,
}
"""By the name in a rule: whether the rule applies to a run that ended with this code."""


def restarts(
    policy: str, attempt: int, exit_code: int, rules: Iterable[Mapping[str, Any]] = ()
) -> bool:
    """Whether another run is started; an unknown policy starts none.

    Args:
        policy: ``restartPolicy`` of the container or of its pod.
        attempt: how many runs there were before the one that ended.
        exit_code: how that one ended; 128 + the signal's number where a signal ended it.
        rules: ``restartPolicyRules``: one that applies to the exit code starts another run, whatever
            the policy.
    """
    for rule in rules:
        codes = rule.get("exitCodes") or {}
        applies = EXIT_CODE_OPERATORS.get(codes.get("operator", ""))
        if applies is not None and applies(exit_code, codes.get("values") or ()):
            return True
    wants_another = RESTART_POLICIES.get(policy)
    return wants_another is not None and wants_another(attempt, exit_code)
