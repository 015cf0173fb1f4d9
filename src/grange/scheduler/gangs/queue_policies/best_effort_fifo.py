"""BestEffortFIFO, as Kueue calls it: by priority, then by age; one that is blocked may be overtaken."""

from dataclasses import dataclass

from grange.scheduler.gangs.quotas import Rank


@dataclass(frozen=True, slots=True)
class BestEffortFIFO:
    """The default policy: ``overtakes`` pods may be placed before one that comes first."""

    overtakes: int

    def rank(self, priority: int, since: float) -> Rank:
        """See ``QueuePolicy``."""
        return -float(priority), since

    def claims(self, overtaken: int) -> bool:
        """See ``QueuePolicy``."""
        return overtaken >= self.overtakes
