"""Which available machines have been silent for too long, with a brake when too many are at once."""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple


class HealthVerdict(NamedTuple):
    """What a look at the machines of a pool came to.

    Attributes:
        unhealthy: names of machines to end, sorted.
        braked: how many would be ended, were they not too many.
    """

    unhealthy: tuple[str, ...] = ()
    braked: int = 0


class MachineHealth:
    """Remembers since when machines are silent; lost at a restart, which gives each its full time.

    Args:
        unhealthy_share: while a greater share is silent, none is ended: rather the path to them is
            broken than so many machines. One may always be ended.
    """

    def __init__(self, unhealthy_share: float) -> None:
        self._share = unhealthy_share
        self._since: dict[str, dict[str, float]] = {}

    def look(
        self, pool: str, answering: Mapping[str, bool], healthy_s: float, now: float
    ) -> HealthVerdict:
        """Judge the machines of a pool.

        Args:
            pool: its name.
            answering: its available machines, and whether each node is ready.
            healthy_s: so long a machine may be silent.
            now: monotonic seconds.
        """
        before = self._since.get(pool, {})
        since = {name: before.get(name, now) for name, ready in answering.items() if not ready}
        self._since[pool] = since
        silent = sorted(name for name, first in since.items() if now - first >= healthy_s)
        if len(since) > ceil(self._share * len(answering)):
            return HealthVerdict(braked=len(silent))
        return HealthVerdict(tuple(silent))
