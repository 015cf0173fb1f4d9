"""Which instance types could hold a pod, cheapest first.

The rules are those of elotl/kip's instance selector: the cheapest type that has the memory, the
processors and the devices; a burstable type counts by its baseline, or may burst for a surcharge. A
pod that wants unshared processors is compared by their number, too, which kip forgets.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase

from grange.api import selectors
from grange.api.kinds.machine import CAPACITY_TYPE_LABEL, ON_DEMAND, SPOT
from grange.api.kinds.nodepool import NodePoolSpec
from grange.api.pod_requests import Resources, allocatable
from grange.machines.catalogue import InstanceType, Offering

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"

SURCHARGE_PER_CORE = Decimal("0.05")
"""Per hour and processor above the baseline of a burstable type; what EC2 has charged since 2018."""

CANDIDATES_MAX = 60

Usable = Callable[[InstanceType, Offering], bool]
"""Whether an offering comes into question."""


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """A way to get a machine.

    Attributes:
        instance_type: which.
        offering: where, and for how much.
        sustained: it would have to run above its baseline.
        cost: price per hour with the surcharge for that.
    """

    instance_type: InstanceType
    offering: Offering
    sustained: bool
    cost: Decimal


def _any(kind: InstanceType, offering: Offering) -> bool:
    return True


def _cost(choice: MachineChoice) -> Decimal:
    return choice.cost


class InstanceSelector:
    """The instance types that a pool may use.

    Args:
        catalogue: of the provider.
        spec: of the pool: its types and requirements.
    """

    def __init__(self, catalogue: Iterable[InstanceType], spec: NodePoolSpec) -> None:
        requirements = [
            selectors.Requirement(item.key, item.operator, tuple(item.values))
            for item in spec.requirements
        ]
        self._types: dict[str, InstanceType] = {}
        self._offerings: dict[str, tuple[Offering, ...]] = {}
        self._room: dict[str, Resources] = {}
        for kind in catalogue:
            if spec.instance_types and not _is_named(kind.name, spec.instance_types):
                continue
            offerings = tuple(
                offering
                for offering in kind.offerings
                if all(item.matches(labels_of(kind, offering)) for item in requirements)
            )
            if offerings:
                self._types[kind.name] = kind
                self._offerings[kind.name] = offerings
                self._room[kind.name] = allocatable(kind.room)
        self._cheapest_first = sorted(
            ((kind, each) for name, kind in self._types.items() for each in self._offerings[name]),
            key=lambda way: way[1].price,
        )
        self._cheapest_of: dict[str, list[tuple[InstanceType, Offering]]] = {}
        for way in self._cheapest_first:
            self._cheapest_of.setdefault(way[0].name, []).append(way)

    def find(self, name: str) -> InstanceType | None:
        """The type of this name, if the pool may use it."""
        return self._types.get(name)

    def room(self, name: str) -> Resources | None:
        """What pods can have on a machine of the type; None for one that the pool may not use."""
        return self._room.get(name)

    def price(self, name: str, zone: str, *, spot: bool) -> Decimal | None:
        """Per hour; None where it is not offered."""
        prices = [
            offering.price
            for offering in self._offerings.get(name, ())
            if offering.spot == spot and zone in ("", offering.zone)
        ]
        return min(prices, default=None)

    def choices(
        self,
        request: Resources,
        *,
        named: str = "",
        dedicated_cpu: bool = False,
        sustained_cpu: bool | None = None,
        usable: Usable = _any,
        most: int = CANDIDATES_MAX,
    ) -> list[MachineChoice]:
        """The ways to get a machine that holds a request, cheapest first, then in the catalogue's order.

        Args:
            request: what a pod requests.
            named: the only type that may be taken, whatever is requested.
            dedicated_cpu: no burstable type.
            sustained_cpu: False: a burstable type counts by its baseline.
            usable: which offerings come into question.
            most: choices to return.
        """
        held: dict[str, bool] = {}
        found: list[MachineChoice] = []
        ways = self._cheapest_of.get(named, ()) if named else self._cheapest_first
        for kind, offering in ways:
            if len(found) >= most and offering.price >= found[-1].cost:
                break  # what follows costs no less, with or without a surcharge
            name = kind.name
            if named:
                extra = _above_baseline(kind, request) if sustained_cpu else 0
            else:
                if name not in held:
                    held[name] = holds(self._room[name], request)
                if not held[name] or (dedicated_cpu and kind.burstable):
                    continue
                extra = _above_baseline(kind, request)
                if extra and sustained_cpu is False:
                    continue
            if usable(kind, offering):
                surcharge = SURCHARGE_PER_CORE * extra / 1000 if extra else 0
                choice = MachineChoice(kind, offering, bool(extra), offering.price + surcharge)
                insort(found, choice, key=_cost)
                del found[most:]
        return found


def labels_of(kind: InstanceType, offering: Offering) -> Mapping[str, str]:
    """The labels that a node of an offering gets."""
    own = {
        INSTANCE_TYPE_LABEL: kind.name,
        CAPACITY_TYPE_LABEL: SPOT if offering.spot else ON_DEMAND,
    }
    return {**kind.labels, **own, **({ZONE_LABEL: offering.zone} if offering.zone else {})}


def holds(room: Resources, request: Resources) -> bool:
    """Whether there is room for a request; extended resources that are not offered count as none."""
    return (
        request.cpu_milli <= room.cpu_milli
        and request.memory_bytes <= room.memory_bytes
        and all(room.scalars.get(name, 0) >= amount for name, amount in request.scalars.items())
    )


def _above_baseline(kind: InstanceType, request: Resources) -> int:
    return max(0, request.cpu_milli - kind.baseline_milli) if kind.burstable else 0


def _is_named(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
