"""PrioritySort: higher priority first, then the longer wait."""

from grange.scheduler.framework import Plugin
from grange.scheduler.podinfo import PodInfo


def _by_priority(pod: PodInfo, timestamp: float) -> tuple[float, ...]:
    return -pod.priority, timestamp


PLUGIN = Plugin("PrioritySort", queue_sort=_by_priority)
