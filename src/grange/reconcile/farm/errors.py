"""What a farm refuses. All are answers of the API as far as a controller is concerned.

They are ``ApiError``s because every controller has a place where it deals with those: a write that
is not its to make any more is a lost race, a deletion that is held back is one to try later.
"""

from grange.api.status import Conflict, TooManyRequests


class Fenced(Conflict):
    """The write was not sent: the writer has no right to it any more."""


class SessionLost(Fenced):
    """The member's session has ended, or would end before the write could."""


class ClaimNotHeld(Fenced):
    """The member does not hold the object that this pass is about."""


class DeletionsHeld(TooManyRequests):
    """The deletion guard holds back deletions: the message gives the reason and how to resume."""
