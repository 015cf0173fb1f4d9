"""PrioritySort: higher priority first, then the longer wait."""

from grange.scheduler.framework import Plugin
from grange.scheduler.podinfo import PodInfo


class _ByPriority:
    def sort_key(self, pod: PodInfo, timestamp: float) -> tuple[float, ...]:
        """Priority descending, time of queueing ascending."""
        return -pod.pod.spec.priority, timestamp


PLUGIN = Plugin("PrioritySort", queue_sort=_ByPriority())
