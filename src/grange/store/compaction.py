"""When history may go: keep the last minutes of it, bounded by a number of revisions.

The decision is ``mark``, a pure function of what was observed; ``Compactor`` only watches the clock
and the store.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.store.errors import StoreClosed, StoreError
from grange.store.interface import Store


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history a store keeps for lists and watches that resume."""

    keep_s: float = 300.0
    """History younger than this many seconds stays: what clients of Kubernetes are used to."""
    keep_revisions: int = 100_000
    """But never more than so many revisions, which bounds disk use and the time to open."""
    interval_s: float = 15.0
    """How often to look, in seconds."""
    step_revisions: int = 100
    """Do not bother the disk for less than this, so that an idle machine stays idle."""
    quiet_s: float = 3_600.0
    """After so many seconds without a compaction compact for any revision: what is deleted from a
    store with few writes leaves the disk, too."""


@dataclass(frozen=True, slots=True)
class RevisionSample:
    """Which revision was the last at some moment.

    Attributes:
        at: monotonic seconds.
        revision: the last acknowledged revision then.
    """

    at: float
    revision: int


def mark(
    retention: Retention, observations: Iterable[RevisionSample], *, now: float, compacted: int
) -> int:
    """The revision to compact to; the present mark if there is nothing worth doing.

    Args:
        retention: the policy.
        observations: in the order of time; the last one has the present revision.
        now: monotonic seconds.
        compacted: the present mark.
    """
    target = compacted
    last = compacted
    for observation in observations:
        if observation.at <= now - retention.keep_s:
            target = max(target, observation.revision)
        last = observation.revision
    target = max(target, last - retention.keep_revisions)
    return target if target - compacted >= retention.step_revisions else compacted


class Compactor:
    """The service that applies a policy to a store.

    Args:
        store: what to compact.
        clock: whose seconds the policy means.
        log: where failures are logged.
        retention: the policy.
    """

    def __init__(
        self, store: Store, *, clock: Clock, log: Logger, retention: Retention | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._retention = retention or Retention()
        self._observations: deque[RevisionSample] = deque()
        self._compacted_at = clock.monotonic()

    async def run(self) -> None:
        """Compact now and then until cancelled, or until the store is closed.

        A refusal of the disk is logged and tried again at the next turn.
        """
        while True:
            try:
                await self._turn()
            except StoreClosed:
                return
            except StoreError as error:
                self._log.warning("compaction failed", error=error)
            await self._clock.sleep(self._retention.interval_s)

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        self._observations.append(RevisionSample(now, self._store.revision))
        compacted = self._store.compacted
        retention = self._retention
        if now - self._compacted_at >= retention.quiet_s:
            retention = replace(retention, step_revisions=1)
        target = mark(retention, self._observations, now=now, compacted=compacted)
        oldest_needed = now - self._retention.keep_s
        while len(self._observations) > 1 and self._observations[1].at <= oldest_needed:
            self._observations.popleft()
        if target > compacted:
            await self._store.compact(target)
            self._compacted_at = now
            self._log.debug("history compacted", revision=target)
