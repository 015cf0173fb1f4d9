"""Pools whose launches a provider refuses whatever is ordered, and for how long to order nothing: pure.

Wrong credentials, an image that may not be used, user data that cannot be made: each machine would be
refused as the last one was. What is refused again after the pause doubles it, as a shortage does; a
change of the pool and a launch that is taken end it.
"""

from datetime import datetime

from grange.api.kinds.nodepool import NodePool
from grange.machines.scaling.refusal_pauses import RefusalPauses

PAUSE_S, PAUSE_MAX_S = 15.0, 600.0


class LaunchRefusals:
    """Remembers refusals of pools; lost at a restart, by design."""

    def __init__(self) -> None:
        # A pool waits for its next pass when a pause is over, and for an answer of the provider then.
        self._pauses: RefusalPauses[tuple[str, int]] = RefusalPauses(
            PAUSE_MAX_S, memory_s=PAUSE_MAX_S
        )

    def refuse(self, pool: NodePool, message: str, now: datetime) -> None:
        """Remember a refusal; during a pause, another one changes nothing.

        Args:
            pool: as its machine was launched for.
            message: of the provider.
            now: wall time.
        """
        self._pauses.prune(now)
        self._pauses.refuse(_spec_of(pool), PAUSE_S, message, now)

    def allow(self, pool: NodePool) -> None:
        """A launch was taken."""
        self._pauses.allow(_spec_of(pool))

    def reason(self, pool: NodePool, now: datetime) -> str:
        """Why nothing is ordered for a pool now; empty where something may be."""
        found = self._pauses.find(_spec_of(pool), now)
        return f"{found.reason}; launches are tried again at {found.end}" if found else ""


def _spec_of(pool: NodePool) -> tuple[str, int]:
    return pool.metadata.uid, pool.metadata.generation
