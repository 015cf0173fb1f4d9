"""What can go wrong inside the scheduler, by reaction.

::

    GrangeError
    └── SchedulerError
        ├── CacheError            the event does not fit the cache's state: log it and continue
        ├── SnapshotInconsistent  this cycle fails; the snapshot has repaired itself for the next
        ├── CacheCorrupted        the cache contradicts the cluster: rebuild it from the informers
        └── SchedulerNotRunning   another process schedules: ask there
"""

from grange.base.errors import GrangeError


class SchedulerError(GrangeError):
    """Base of the scheduler's errors."""


class CacheError(SchedulerError):
    """A transition that the pod's or node's state does not allow; nothing was changed."""


class SnapshotInconsistent(SchedulerError):
    """The snapshot disagreed with the node tree and was rebuilt: fail the cycle, try again."""


class CacheCorrupted(SchedulerError):
    """The cache holds something that cannot be true: drop it and rebuild it."""


class SchedulerNotRunning(SchedulerError):
    """The scheduler does not run in this process now."""
