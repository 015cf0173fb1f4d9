"""How many launches of an offering are tried at a time, and when the next may be: pure.

An offering is an instance type in a zone and a market. At first a few launches are tried; each one that is
taken doubles that. After a shortage, or when the provider asks for fewer calls, a single one is tried, after a
pause that doubles in the second case. So a shortage costs one refused launch and not one for each pod that
waits, and other offerings are launched meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from grange.api.kinds.machine import MachineSpec
from grange.machines.providers.provider import Instance
from grange.machines.scaling.refusal_pauses import RefusalPause, RefusalPauses
from grange.machines.scaling_plan import MachineStart

FIRST, MOST = 10, 1000
"""Launches of an offering at a time: at first, and at most."""

PAUSE_S, PAUSE_MAX_S = 2.0, 60.0
"""After a launch that the provider asks to make later."""

Offering = tuple[str, str, bool]
"""Instance type, zone and whether spot."""


class LaunchBudgets:
    """Counts launches at one provider; lost at a restart, by design."""

    def __init__(self) -> None:
        self._sizes: dict[Offering, int] = {}
        self._calls: Counter[Offering] = Counter()
        self._pauses: RefusalPauses[Offering] = RefusalPauses(PAUSE_MAX_S, memory_s=PAUSE_MAX_S)

    # --- what is ordered -------------------------------------------------------------------------

    def affordable(
        self, starts: Sequence[MachineStart], launching: Iterable[MachineSpec]
    ) -> tuple[MachineStart, ...]:
        """The machines that may be ordered now, in their order; the others are planned again.

        Args:
            starts: as planned.
            launching: machines at the provider that are ordered and whose launch is not answered.
        """
        ordered = Counter(map(offering_of, launching))
        found: list[MachineStart] = []
        for start in starts:
            key = offering_of(start.spec)
            if ordered[key] < self._size(key):
                ordered[key] += 1
                found.append(start)
        return tuple(found)

    def pause(self, offering: Offering, now: datetime) -> RefusalPause | None:
        """The pause in launches of an offering; None where there is none."""
        return self._pauses.find(offering, now)

    def refusal(self, spec: MachineSpec, now: datetime) -> str:
        """Why no machine is ordered of what is tried first; empty where one may be."""
        kind, zone, spot = key = offering_of(spec)
        if (found := self.pause(key, now)) is None:
            return ""
        what = " ".join(filter(None, (kind, "spot" if spot else "", f"in {zone}" if zone else "")))
        return f"{what}: {found.reason}; launches are tried again at {found.end}"

    # --- what is called --------------------------------------------------------------------------

    def begin(self, offering: Offering) -> bool:
        """Count a call that launches a machine; False where it is to wait for the others."""
        if self._calls[offering] >= self._size(offering):
            return False
        self._calls[offering] += 1
        return True

    def end(self, offering: Offering) -> None:
        """A call that was counted is over, however it ended."""
        self._calls[offering] -= 1
        if not self._calls[offering]:
            del self._calls[offering]

    def taken(self, offering: Offering, instance: Instance) -> None:
        """A machine was launched.

        Args:
            offering: that was to be tried first.
            instance: that it became; a provider that tries several may have had no other.
        """
        kind, zone, spot = offering
        self._pauses.allow(offering)
        if (kind, spot) != (instance.instance_type, instance.spot) or zone not in (
            "",
            instance.zone,
        ):
            offering = instance.instance_type, instance.zone, instance.spot
        self._sizes[offering] = min(MOST, 2 * self._size(offering))

    def short(self, offering: Offering) -> None:
        """The provider has none: when it is tried again, one launch shows whether it has."""
        self._sizes[offering] = 1

    def throttled(self, offering: Offering, wait_s: float, reason: str, now: datetime) -> None:
        """The provider asks for fewer calls.

        Args:
            offering: that was asked for.
            wait_s: so long it asks to wait; zero where it does not state that.
            reason: for people.
            now: wall time.
        """
        self._sizes[offering] = 1
        self._pauses.refuse(offering, max(PAUSE_S, wait_s), reason, now)

    def _size(self, offering: Offering) -> int:
        return self._sizes.get(offering, FIRST)


def offering_of(spec: MachineSpec) -> Offering:
    """The offering of a machine that is tried first."""
    for first in spec.candidates:
        return first.instance_type, first.zone, first.spot
    return spec.instance_type, spec.placement.zone, spec.spot
