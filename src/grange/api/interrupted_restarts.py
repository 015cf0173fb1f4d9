"""Restarts of a pod's containers that followed stops of their node: not the fault of their programs.

An agent states their number in a condition of the pod, written together with ``restartCount``, which
includes them. Controllers that charge restarts leave them out.
"""

from collections.abc import Iterable

from grange.api import conditions
from grange.api.meta import Condition

CONDITION = "grange.dev/InterruptedRestarts"
"""Type of the pod condition that states their number."""
_REASON = "NodeStopped"
_MESSAGE = "restarts of containers because their node was stopped: "
_DIGITS_MAX = 9  # others may write conditions, too; Python reads no number of thousands of digits


def condition(count: int) -> Condition:
    """The condition that states a number."""
    return Condition(CONDITION, "True", _REASON, f"{_MESSAGE}{count}")


def count_of(present: Iterable[Condition]) -> int:
    """The number that a pod's conditions state; 0 without one, or where it is malformed."""
    found = conditions.find(tuple(present), CONDITION)
    number = "" if found is None else found.message.removeprefix(_MESSAGE)
    is_number = number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX
    return int(number) if is_number else 0
