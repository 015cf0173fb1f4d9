"""How long passes take, for people who look into a controller."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True)
class PassTimer:
    """Times of passes.

    Attributes:
        start, end: of the last pass; None before it.
        last_s: seconds that it took.
        average_s: of all passes.
        count: of all passes.
    """

    start: datetime | None = None
    end: datetime | None = None
    last_s: float = 0.0
    average_s: float = 0.0
    count: int = 0

    def passed(self, start: datetime, end: datetime, seconds: float) -> None:
        """Count a pass."""
        self.start, self.end, self.last_s = start, end, seconds
        self.average_s = (self.average_s * self.count + seconds) / (self.count + 1)
        self.count += 1
