"""Pools whose launches a provider refuses whatever is ordered, and for how long to order nothing: pure.

Wrong credentials, an image that may not be used, user data that cannot be made: each machine would be
refused as the last one was. What is refused again after the pause doubles it, as a shortage does; a
change of the pool and a launch that is taken end it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api import timestamps
from grange.api.kinds.nodepool import NodePool

PAUSE_S, PAUSE_MAX_S = 15.0, 600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    generation: int
    until: datetime
    pause_s: float
    message: str


class LaunchRefusals:
    """Remembers refusals of pools; lost at a restart, by design."""

    def __init__(self) -> None:
        self._known: dict[str, _Refusal] = {}

    def refuse(self, pool: NodePool, message: str, now: datetime) -> None:
        """Remember a refusal; during a pause, another one changes nothing.

        Args:
            pool: as its machine was launched for.
            message: of the provider.
            now: wall time.
        """
        longest = timedelta(seconds=PAUSE_MAX_S)
        self._known = {uid: one for uid, one in self._known.items() if now < one.until + longest}
        before = self._known.get(pool.metadata.uid)
        pause_s = PAUSE_S
        if before is not None and before.generation == pool.metadata.generation:
            if now < before.until:
                return
            pause_s = min(2 * before.pause_s, PAUSE_MAX_S)
        until = now + timedelta(seconds=pause_s)
        self._known[pool.metadata.uid] = _Refusal(pool.metadata.generation, until, pause_s, message)

    def allow(self, pool: NodePool) -> None:
        """A launch was taken."""
        self._known.pop(pool.metadata.uid, None)

    def reason(self, pool: NodePool, now: datetime) -> str:
        """Why nothing is ordered for a pool now; empty where something may be."""
        found = self._known.get(pool.metadata.uid)
        if found is None or found.generation != pool.metadata.generation or now >= found.until:
            return ""
        return f"{found.message}; launches are tried again at {timestamps.rfc3339(found.until)}"
