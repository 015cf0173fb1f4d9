"""Which of the planned machines are launched in this pass."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from grange.base.rng import Stream
from grange.machines.scaling_plan import MachineStart, PodSkip, ScalingPlan

Affordable = Callable[[Sequence[MachineStart]], Sequence[MachineStart]]
"""Of planned machines those that the budgets of their offerings allow."""


def launch_choice(
    starts: Sequence[MachineStart], limit: int, rng: Stream, affordable: Affordable
) -> tuple[MachineStart, ...]:
    """At most so many, in random order if not all can be.

    The others are planned again in the next pass. A fixed order would let machines that can never be
    launched keep those behind them waiting.
    """
    found = affordable(starts)
    if len(found) == len(starts) <= limit:
        return tuple(starts)
    return tuple(affordable(rng.shuffled(starts))[:limit])


def without_starts(plan: ScalingPlan, refusal: Callable[[MachineStart], str]) -> ScalingPlan:
    """The plan without the machines that are refused: their pods and leases are skipped, with the reason.

    Args:
        plan: as it was made.
        refusal: why a machine is not to be ordered; empty where it is.
    """
    refused = {start.name: why for start in plan.start if (why := refusal(start))}
    if not refused:
        return plan
    pools = {start.name: (start.spec.pool,) for start in plan.start}
    leases = {
        start.lease_uid: PodSkip(
            "", start.lease_uid, f"{start.reason}: {refused[start.name]}", pools[start.name]
        )
        for start in plan.start
        if start.lease_uid and start.name in refused
    }
    return replace(
        plan,
        start=tuple(start for start in plan.start if start.name not in refused),
        bind=tuple(one for one in plan.bind if one.machine not in refused),
        skip=(
            *plan.skip,
            *(
                PodSkip(one.pod, one.pod_uid, refused[one.machine], pools[one.machine])
                for one in plan.bind
                if one.machine in refused
            ),
            *leases.values(),
        ),
    )
