"""The annotation by which a user restarts roles of a job.

It names the lowest attempt that each role should be in: ``worker=2,launcher=1``. The controller
raises a role's attempt to it, so that the annotation has no effect once it is met, and a write that
is repeated restarts nothing a second time.
"""

from collections.abc import Mapping

ANNOTATION = "grange.dev/minimum-attempts"


def parse(text: str) -> dict[str, int]:
    """Attempts by role in lower case; entries that are malformed are left out."""
    found = {}
    for item in text.split(","):
        role, _, number = item.strip().partition("=")
        if role and number.isascii() and number.isdecimal() and len(number) < 10:
            found[role.lower()] = int(number)
    return found


def written(attempts: Mapping[str, int]) -> str:
    """The annotation's value."""
    return ",".join(f"{role}={number}" for role, number in sorted(attempts.items()))
