"""What a call to the simulated cloud may suffer."""

from collections import defaultdict, deque
from collections.abc import Callable
from enum import Enum


class CloudFault(Enum):
    """A fault of one call.

    Attributes:
        FAIL: it is answered with an error, and nothing was done.
        LIE: it is answered with an error, and was done.
        HANG: it is never answered, and nothing was done.
        HANG_DONE: it is never answered, and was done.
        LATE: it is answered with an error, and is done some time later.
        TWICE: it is done now, and once more some time later.
        THROTTLE: it is refused: too many calls.
        MISCONFIGURED: it is refused for good.
    """

    FAIL = "fail"
    LIE = "lie"
    HANG = "hang"
    HANG_DONE = "hang, done"
    LATE = "late"
    TWICE = "twice"
    THROTTLE = "throttle"
    MISCONFIGURED = "misconfigured"


FaultSource = Callable[[str, str], CloudFault | None]
"""Decides about a call by its name and its subject (token or instance id)."""


def no_fault(call: str, subject: str) -> CloudFault | None:
    """Every call succeeds."""
    return None


class ScriptedFaults:
    """Faults in a given order, by the name of the call."""

    def __init__(self) -> None:
        self._next: defaultdict[str, deque[CloudFault]] = defaultdict(deque)

    def add(self, call: str, *faults: CloudFault) -> None:
        """The next calls of this name have these faults, one each."""
        self._next[call].extend(faults)

    def __call__(self, call: str, subject: str) -> CloudFault | None:
        """The fault of a call."""
        waiting = self._next.get(call)
        return waiting.popleft() if waiting else None
