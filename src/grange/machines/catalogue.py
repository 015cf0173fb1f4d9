"""What providers offer: instance types, where they are to be had, and for how much."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Offering:
    """One way to buy an instance type.

    Attributes:
        zone: empty where the provider has no zones.
        spot: whether it can be taken back at any time.
        price: per hour; zero: it costs nothing. What cannot be bought is not offered.
    """

    zone: str = ""
    spot: bool = False
    price: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A type of machine.

    Attributes:
        name: of the provider.
        capacity: what a node of it has, quantities by resource name: ``cpu``, ``memory``, ``pods``,
            GPUs under their usual resource names.
        allocatable: what is left for pods when the system and the agent have theirs; empty: all.
        labels: that nodes of it get, e.g. ``kubernetes.io/arch``.
        burstable: its processors are shared: only ``baseline_milli`` of them all the time.
        baseline_milli: thousandths of a processor; for burstable types.
        offerings: ways to buy it, at least one.
    """

    name: str
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    burstable: bool = False
    baseline_milli: int = 0
    offerings: tuple[Offering, ...] = (Offering(),)

    @property
    def room(self) -> Mapping[str, str]:
        """What pods can have."""
        return self.allocatable or self.capacity
