"""The subnets of a pool: which one a machine gets, and when the list is read again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from grange.machines.providers.provider import ProviderError

REFRESH_S = 150.0


class AddressAffinity(Enum):
    """In which subnets a machine may be."""

    ANY = "Any"
    PUBLIC = "Public"
    PRIVATE = "Private"


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet of one zone.

    Attributes:
        id: of the provider.
        zone: where.
        is_public: machines get a public address.
        free_addresses: how many are left.
    """

    id: str
    zone: str
    is_public: bool = False
    free_addresses: int = 0

    def suits(self, affinity: AddressAffinity) -> bool:
        """Whether a machine with this affinity may be in it."""
        if affinity is AddressAffinity.ANY:
            return True
        return self.is_public is (affinity is AddressAffinity.PUBLIC)


class SubnetTable:
    """The subnets as they were last read.

    Args:
        read: lists them.
    """

    def __init__(self, read: Callable[[], Sequence[Subnet]]) -> None:
        self._read = read
        self._subnets: tuple[Subnet, ...] = ()
        self._at: float | None = None

    def refresh(self, now: float) -> None:
        """Read them again when they are old; what was read before stays if that fails.

        Raises:
            ProviderError: they were never read, and cannot be.
        """
        if self._at is not None and now - self._at < REFRESH_S:
            return
        try:
            self._subnets = tuple(self._read())
        except ProviderError:
            if self._at is None:
                raise
        self._at = now

    def zones(self, affinity: AddressAffinity) -> frozenset[str]:
        """Where a machine can be."""
        return frozenset(one.zone for one in self._usable(affinity))

    def candidates(self, zone: str, affinity: AddressAffinity) -> list[Subnet]:
        """The usable subnets of a zone, those with the most free addresses first."""
        here = (one for one in self._usable(affinity) if one.zone == zone)
        return sorted(here, key=lambda one: (-one.free_addresses, one.id))

    def exhaust(self, subnet_id: str) -> None:
        """It has no free address, until it is read again."""
        self._subnets = tuple(
            Subnet(one.id, one.zone, one.is_public) if one.id == subnet_id else one
            for one in self._subnets
        )

    def _usable(self, affinity: AddressAffinity) -> Iterable[Subnet]:
        return (one for one in self._subnets if one.free_addresses > 0 and one.suits(affinity))
