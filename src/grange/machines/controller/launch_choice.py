"""Which of the planned machines are launched in this pass."""

from collections.abc import Sequence

from grange.base.rng import Stream
from grange.machines.scaling_plan import MachineStart


def launch_choice(
    starts: Sequence[MachineStart], limit: int, rng: Stream
) -> tuple[MachineStart, ...]:
    """At most so many, in random order if there are more.

    The others are planned again in the next pass. A fixed order would let machines that can never be
    launched keep those behind them waiting.
    """
    if len(starts) <= limit:
        return tuple(starts)
    return tuple(rng.shuffled(starts)[:limit])
