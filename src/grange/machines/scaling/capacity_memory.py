"""What could not be had lately: offerings that a provider refused, and for how long to leave them.

Marks are kept per instance type, zone and market, each in its own right: a shortage of spot machines
does not touch on-demand ones. Marks that follow one another double, as each was tried again in between; a
success ends that.
"""

from datetime import datetime

from grange.machines.scaling.refusal_pauses import RefusalPauses

SHORTAGE_S, QUOTA_S = 180.0, 900.0
"""First waits after a shortage and after a limit of the account."""

WAIT_MAX_S = 1800.0

Key = tuple[str, str, bool]
"""Instance type, zone (empty: all zones) and whether spot."""


class CapacityMemory:
    """Remembers refusals; lost at a restart, by design."""

    def __init__(self) -> None:
        self._pauses: RefusalPauses[Key] = RefusalPauses(WAIT_MAX_S)

    def refuse(
        self,
        instance_type: str,
        zone: str,
        *,
        spot: bool,
        now: datetime,
        wait_s: float = SHORTAGE_S,
        reason: str = "",
    ) -> None:
        """Remember a refusal; while one lasts, another of the same offering changes nothing.

        Args:
            instance_type: which.
            zone: where; empty: everywhere.
            spot: which market.
            now: wall time.
            wait_s: of a first refusal: ``SHORTAGE_S`` or ``QUOTA_S``.
            reason: for people.
        """
        self._pauses.refuse((instance_type, zone, spot), wait_s, reason, now)

    def allow(self, instance_type: str, zone: str, *, spot: bool) -> None:
        """Forget all refusals of an offering: one was launched."""
        for known in (zone, ""):
            self._pauses.allow((instance_type, known, spot))

    def refusal(self, instance_type: str, zone: str, *, spot: bool, now: datetime) -> str | None:
        """Why an offering is left alone; None if it may be tried."""
        for known in {zone, ""}:
            if (pause := self._pauses.find((instance_type, known, spot), now)) is not None:
                return f"{pause.reason or 'no capacity'}; tried again at {pause.end}"
        return None

    def prune(self, now: datetime) -> None:
        """Forget marks that are over for so long that they no longer double the next."""
        self._pauses.prune(now)
