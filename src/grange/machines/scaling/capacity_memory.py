"""What could not be had lately: offerings that a provider refused, and for how long to leave them.

Marks are kept per instance type, zone and market, each in its own right: a shortage of spot machines
does not touch on-demand ones. A mark is not extended while it lasts, since trying less is no
evidence. Marks that follow one another double, as each was tried again in between; a success ends that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api import timestamps
from grange.machines.catalogue import InstanceType

SHORTAGE_S, QUOTA_S = 180.0, 900.0
"""First waits after a shortage and after a limit of the account."""

WAIT_MAX_S = 1800.0

Key = tuple[str, str, bool]
"""Instance type, zone (empty: all zones) and whether spot."""


@dataclass(frozen=True, slots=True)
class _Mark:
    until: datetime
    wait_s: float
    reason: str


class CapacityMemory:
    """Remembers refusals; lost at a restart, by design."""

    def __init__(self) -> None:
        self._marks: dict[Key, _Mark] = {}

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
        key = (instance_type, zone, spot)
        before = self._marks.get(key)
        if before is not None:
            if now < before.until:
                return
            # It was tried again within as long as it had waited: the shortage goes on.
            if now < before.until + timedelta(seconds=before.wait_s):
                wait_s = min(WAIT_MAX_S, 2 * max(before.wait_s, wait_s))
        self._marks[key] = _Mark(now + timedelta(seconds=wait_s), wait_s, reason)

    def allow(self, instance_type: str, zone: str, *, spot: bool) -> None:
        """Forget all refusals of an offering: one was launched."""
        for known in (zone, ""):
            self._marks.pop((instance_type, known, spot), None)

    def refusal(self, instance_type: str, zone: str, *, spot: bool, now: datetime) -> str | None:
        """Why an offering is left alone; None if it may be tried."""
        for known in {zone, ""}:
            mark = self._marks.get((instance_type, known, spot))
            if mark is not None and now < mark.until:
                # A moment, not the seconds that are left: the text is the same until then.
                at = timestamps.rfc3339(mark.until)
                return f"{mark.reason or 'no capacity'}; tried again at {at}"
        return None

    def zones(self, kind: InstanceType, *, spot: bool, now: datetime) -> tuple[str, ...]:
        """The zones in which a type may be tried, sorted; those of a type without zones are ``("",)``."""
        return tuple(
            sorted(
                {
                    offering.zone
                    for offering in kind.offerings
                    if offering.spot == spot
                    and self.refusal(kind.name, offering.zone, spot=spot, now=now) is None
                }
            )
        )

    def prune(self, now: datetime) -> None:
        """Forget marks that are over for so long that they no longer double the next."""
        self._marks = {
            key: mark
            for key, mark in self._marks.items()
            if now < mark.until + timedelta(seconds=mark.wait_s)
        }

    def listed(self, now: datetime) -> Iterable[tuple[Key, datetime, str]]:
        """The marks that last: offering, until when, and why; sorted."""
        return sorted((key, m.until, m.reason) for key, m in self._marks.items() if now < m.until)
