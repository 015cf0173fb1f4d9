"""Settings of a farm."""

from dataclasses import dataclass

from grange.api import names
from grange.api.farm_protocol import NAMESPACE
from grange.base.errors import GrangeError

TICK_S = 1e-3
"""The shortest wait: rests of a wait on a clock of another pace may be too small to pass."""


class BadFarmConfig(GrangeError):
    """The settings contradict each other; the message names them."""


@dataclass(frozen=True, slots=True)
class FarmConfig:
    """How one member takes part.

    Attributes:
        member: its name, a DNS subdomain; no two processes may have the same at a time (the second
            waits).
        group: members of one group share their work.
        namespace: of the Leases.
        ttl_s: after so many whole seconds without renewal a session may be ended by others; the
            same for all members of a group.
        margin_s: so long before that the member stops itself. It covers clocks that run at
            different speeds and writes that are on the wire.
        retry_s: pause after a failed renewal or acquisition.
        request_s: a renewal without an answer for so long has failed.
        gather_s: a new session waits so long before it claims, so that members which start
            together share from the beginning.
        rebalance_after_s: work is moved for evenness once it has been uneven for so long.
        handover_s: a pass under way may take so long to end before it is cancelled.
        claimers: claims and releases under way at once.
        workers: passes under way at once, where the farm runs them itself.
        forget_s: the Lease of a session that ended is deleted after so long.
        sole_bearer: something outside (e.g. a lock on a directory) makes sure that no other process
            bears this name: a Lease that an earlier life left behind is taken over at once, and the
            work with it.
    """

    member: str
    group: str = "grange"
    namespace: str = NAMESPACE
    ttl_s: int = 15
    margin_s: float = 3.0
    retry_s: float = 1.0
    request_s: float = 5.0
    gather_s: float = 1.0
    rebalance_after_s: float = 2.0
    handover_s: float = 5.0
    claimers: int = 16
    workers: int = 4
    forget_s: float = 3600.0
    sole_bearer: bool = False

    def __post_init__(self) -> None:
        for field, value in (("member", self.member), ("group", self.group)):
            problem = names.check_dns_subdomain(value)
            if problem is not None:
                raise BadFarmConfig(f"{field} {value!r}: {problem}")
        if not 0 < self.margin_s < self.ttl_s / 2:
            raise BadFarmConfig(
                f"margin_s {self.margin_s:g} must be between 0 and half of ttl_s {self.ttl_s}: "
                "a member renews at half of it and must have time left"
            )

    @property
    def renew_s(self) -> float:
        """Seconds from one renewal to the next."""
        return self.ttl_s / 2

    @property
    def valid_s(self) -> float:
        """How long a member trusts a renewal, counted from when it was sent."""
        return self.ttl_s - self.margin_s

    def lease_name(self, member: str) -> str:
        """Name of a member's Lease."""
        return f"{self.group}-{member}"
