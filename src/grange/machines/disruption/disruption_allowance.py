"""How many machines of a pool may be disrupted now."""

from collections.abc import Iterable
from datetime import datetime
from math import ceil

from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import PoolDisruption, PoolDisruptionBudget
from grange.api.machine_phases import MachinePhase
from grange.machines.scaling.standby import is_open

_ENDING = frozenset({MachinePhase.TERMINATING, MachinePhase.CLEANING, MachinePhase.STOPPING})
_DEFAULT = (PoolDisruptionBudget(),)


def allowed_disruptions(
    disruption: PoolDisruption,
    reason: str,
    machines: Iterable[Machine],
    ready: Iterable[str],
    now: datetime,
) -> int:
    """How many more machines of a pool may be disrupted for a reason.

    The strictest of the budgets that are active counts. Machines that are not ready or end use it up; those
    that boot are not counted at all.

    Args:
        disruption: of the pool.
        reason: of ``disruption_plan``.
        machines: of the pool.
        ready: names of machines whose node is ready and that nothing disrupts.
        now: wall time.
    """
    serving = {*ready}
    base = used = 0
    for machine in machines:
        if machine.phase is MachinePhase.AVAILABLE:
            base += 1
            used += machine.metadata.name not in serving
        elif machine.phase in _ENDING:
            base += 1
            used += 1
    limits = [
        _count(budget, base)
        for budget in disruption.budgets or _DEFAULT
        if (not budget.reasons or reason in budget.reasons)
        and is_open(budget.schedule, budget.duration_seconds, now)
    ]
    return max(0, min(limits, default=base) - used)


def _count(budget: PoolDisruptionBudget, base: int) -> int:
    """The machines that a budget allows, a percentage rounded up; one that cannot be read allows none."""
    text = budget.nodes
    try:
        return ceil(int(text[:-1]) * base / 100) if text.endswith("%") else int(text)
    except ValueError:
        return 0
