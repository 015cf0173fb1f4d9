"""What disruption decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grange.machines.scaling_plan import MachineStart, MachineStop

EMPTY, DRIFTED, EXPIRED, UNDERUTILIZED = "Empty", "Drifted", "Expired", "Underutilized"
"""Reasons, as budgets of pools name them."""

INTERRUPTED = "Interrupted"
"""Reason of machines that their provider takes away: no budget of a pool holds that up."""

POOL_DELETED = "PoolDeleted"
"""Reason of machines in use whose pool is deleted: they are drained and not replaced."""


@dataclass(frozen=True, slots=True)
class DisruptionDecision:
    """Machines that go together, and what replaces them first.

    Attributes:
        reason: one of those above.
        stop: the machines, if they are still as they were.
        replacements: machines to order before; they must be available before anything else is done.
        message: for people.
        forced: budgets of pods do not hold it up.
        unplaced: why not all pods have a place elsewhere; empty where they have.
    """

    reason: str
    stop: tuple[MachineStop, ...]
    replacements: tuple[MachineStart, ...] = ()
    message: str = ""
    forced: bool = False
    unplaced: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Of the machines that go."""
        return frozenset(stop.name for stop in self.stop)


@dataclass(frozen=True, slots=True)
class DisruptionPlan:
    """A look at all machines.

    Attributes:
        decision: what to do; None for nothing.
        kept: why machines stay, by name.
        resume_after: the machine that was looked at last, where not all were; the next look begins after it.
        after_s: where nothing was decided, seconds after which time alone may change that.
    """

    decision: DisruptionDecision | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    resume_after: str = ""
    after_s: float = 60.0
