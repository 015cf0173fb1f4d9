"""Queue policies: the order of gangs and pods that wait for quota or nodes. One module and one line each."""

from collections.abc import Callable
from typing import Protocol

from grange.scheduler.gangs.queue_policies import best_effort_fifo
from grange.scheduler.gangs.quotas import Rank


class QueuePolicy(Protocol):
    """Orders all gangs and pods that wait in one scheduler, whatever their queues."""

    def rank(self, priority: int, since: float) -> Rank:
        """The place in line: the smaller comes first.

        Args:
            priority: of the pod, or of the most important pod of the gang.
            since: monotonic seconds since when it waits.
        """

    def claims(self, overtaken: int) -> bool:
        """Whether the first in line holds back those after it, once so many pods overtook it."""


POLICIES: dict[str, Callable[[int], QueuePolicy]] = {
    "BestEffortFIFO": best_effort_fifo.BestEffortFIFO,
}
"""By name, how a policy is made; the argument is the setting ``overtakes``."""

DEFAULT = "BestEffortFIFO"
