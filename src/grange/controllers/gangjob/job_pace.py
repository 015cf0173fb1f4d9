"""How soon a job is planned again after an event of its pods.

Planning looks at all pods of a job, so a large job is planned for many events at once. One that was
left with more to do than one reconcile may do goes on as soon as its cache shows what was done.
"""

from dataclasses import dataclass, replace

from grange.api.meta import ObjectKey
from grange.base.clock import Clock
from grange.reconcile.expectations import Expectations

_SHARE = 15  # planning one job takes at most a sixteenth of the time
_LONGEST_S = 1.0
_GATHER_S = 0.05  # what events of one cause take to arrive


@dataclass(frozen=True, slots=True)
class _Planned:
    took_s: float
    at: float
    left_of: str


class JobPace:
    """Knows when each job was planned, and how long that took.

    Args:
        clock: of the plans.
        expectations: what each job waits to see in the cache.
    """

    def __init__(self, clock: Clock, expectations: Expectations) -> None:
        self._clock = clock
        self._expectations = expectations
        self._jobs: dict[ObjectKey, _Planned] = {}

    def planned(self, key: ObjectKey, took_s: float, *, left_of: str = "") -> None:
        """A job was planned just now.

        Args:
            key: of the job.
            took_s: the plan, with the look at all pods.
            left_of: UID of the job if it has more to do than is done at once.
        """
        self._jobs[key] = _Planned(took_s, self._clock.monotonic(), left_of)

    def failed(self, key: ObjectKey) -> None:
        """What is left failed; it is not tried again with each event."""
        job = self._jobs.get(key)
        if job is not None:
            self._jobs[key] = replace(job, left_of="")

    def delay_s(self, key: ObjectKey) -> float:
        """Seconds until a job is planned after an event."""
        job = self._jobs.get(key)
        if job is None or (job.left_of and self._expectations.satisfied(job.left_of)):
            return 0.0
        pause_s = min(_LONGEST_S, job.took_s * _SHARE)
        return max(min(pause_s, _GATHER_S), job.at + pause_s - self._clock.monotonic())

    def forget(self, key: ObjectKey) -> None:
        """The job is gone."""
        self._jobs.pop(key, None)
