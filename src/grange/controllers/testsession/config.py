"""Settings of the session controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TestSessionConfig:
    """How the controller works.

    Attributes:
        workers: sessions reconciled at the same time.
    """

    __test__ = False  # not a test, whatever its name begins with

    workers: int = 8
