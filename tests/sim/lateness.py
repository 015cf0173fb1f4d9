"""Owners whose writes are held on their way and delivered when their senders have long given up."""

from collections.abc import Collection

from grange.base.rng import Stream
from grange.sim.chaos import Chaos
from grange.sim.world import World


def late_writes(
    world: World, rng: Stream, owners: Collection[str], *, always: bool = False
) -> Chaos:
    """Faults of owners alone: they come and go while writes are held.

    Args:
        world: whose.
        rng: what is drawn from.
        owners: components whose writes arrive late.
        always: in every world; otherwise in half of them.
    """
    others = frozenset(world.components) - {*owners}
    late = Chaos(world, {}, rng=rng, excluded=others)
    late.disturbances = [late.nothing]
    if always or rng.fork("whether").integer(0, 1):
        late.disturbances = [late.hold_writes, late.hold_writes, late.crash]
    return late
