"""What a call to the simulated cloud may suffer."""

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
