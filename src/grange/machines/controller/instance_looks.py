"""Which records and instances have lost each other: two looks apart must agree.

Lists of providers lag behind what was done, so one look proves nothing. A list that fails is no look.
Strikes are kept in memory only: after a restart both looks are made again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from grange.machines.providers.provider import Instance


@dataclass(frozen=True, slots=True)
class LookResult:
    """What is certain after a look.

    Attributes:
        by_machine: instances by the name of their machine; of several, the first by id.
        missing: names of machines that two looks apart have shown no instance of.
        orphans: instances that two looks apart have shown without a record, sorted by id.
    """

    by_machine: dict[str, Instance]
    missing: frozenset[str]
    orphans: tuple[Instance, ...]


class InstanceLooks:
    """Compares lists of instances with the records.

    Args:
        strike_s: two looks count as two when they are at least so far apart.
    """

    def __init__(self, strike_s: float) -> None:
        self._strike_s = strike_s
        self._missed: dict[str, float] = {}  # machines, by when the first look missed them
        self._unowned: dict[str, float] = {}  # ids of instances, in the same way

    def look(
        self,
        instances: Sequence[Instance],
        machines: Collection[str],
        *,
        calling: Collection[str] = (),
        began: float,
    ) -> LookResult:
        """Count one complete list.

        Args:
            instances: what the provider listed.
            machines: names of all records, read after the list so that none is too new for it.
            calling: machines with a launch under way when the list was asked for: their strikes
                begin again.
            began: monotonic seconds at which the list was asked for.
        """
        by_machine: dict[str, Instance] = {}
        for one in sorted(instances, key=lambda found: found.id):
            by_machine.setdefault(one.machine, one)
        absent = {name for name in machines if name not in by_machine and name not in calling}
        missing = self._strike(self._missed, absent, began)
        without = {one.id for one in instances if one.machine not in machines}
        ended = self._strike(self._unowned, without, began)
        orphans = sorted((one for one in instances if one.id in ended), key=lambda one: one.id)
        return LookResult(by_machine, missing, tuple(orphans))

    def forget(self, machine: str) -> None:
        """A launch of the machine was asked for: what earlier looks missed counts no more."""
        self._missed.pop(machine, None)

    def _strike(self, first: dict[str, float], now_so: set[str], at: float) -> frozenset[str]:
        for name in [name for name in first if name not in now_so]:
            del first[name]
        for name in now_so:
            first.setdefault(name, at)
        return frozenset(name for name in now_so if at - first[name] >= self._strike_s)
