"""The protocol of a provider: the least that makes machines come and go without leaking one.

The contract (tests/contract/test_provider.py):

- ``launch`` under a token that has launched an instance before answers that instance, however often it
  is called, and also when it has ended: a token is never used for a second one.
- ``instances`` lists every instance with the cluster's tag that is not gone, launched or adopted, the
  ones whose launch was never answered included. It never lists those of others.
- ``terminate`` of what is gone does nothing. An instance is gone when it is not listed any more; until
  then it may still run and cost.
- An error is one of those below; anything else that a provider raises is a bug.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from grange.api.kinds.machine import MachineOffering
from grange.api.kinds.node import NodeAddress
from grange.base.errors import GrangeError
from grange.machines.catalogue import InstanceType


class ProviderError(GrangeError):
    """A call failed and may have done something or nothing; the next look shows which."""


class CapacityError(ProviderError):
    """The offering cannot be had now; nothing was launched.

    Attributes:
        whole_type: no offering of the type can be had, in any zone.
        quota: a limit of the account is reached: waiting does not help soon.
        offering: the only one that was tried; None: all of the request.
    """

    def __init__(
        self,
        message: str,
        *,
        whole_type: bool = False,
        quota: bool = False,
        offering: MachineOffering | None = None,
    ) -> None:
        super().__init__(message)
        self.offering = offering
        self.whole_type = whole_type
        self.quota = quota


class ThrottledError(ProviderError):
    """Too many calls; nothing was done.

    Attributes:
        retry_after_s: seconds to wait; zero where the provider gives none.
    """

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class MisconfiguredError(ProviderError):
    """It fails until the pool, the image or the credentials are changed; nothing was done."""


class InstanceGoneError(ProviderError):
    """There is no such instance."""


class InstanceState(Enum):
    """What an instance does."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as its provider knows it.

    Attributes:
        id: of the provider.
        machine: name of the Machine that it was launched for: the token of the launch.
        state: see there; one that is gone is not there at all.
        instance_type, zone, spot: what it is.
        price_per_hour: decimal; empty where it is not known.
        addresses: may be empty until it runs.
    """

    id: str
    machine: str
    state: InstanceState = InstanceState.PENDING
    instance_type: str = ""
    zone: str = ""
    spot: bool = False
    price_per_hour: str = ""
    addresses: tuple[NodeAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """An order.

    Attributes:
        token: name of the Machine.
        offerings: ways to get it, the preferred first; the provider takes the first that it can have,
            or tries the first only, where its tokens do not hold for all of them.
        image: from ``resolve_image``.
        user_data: what the machine executes at its first start; may hold a join token: never logged.
        join_token: the join token alone, for providers that start the agent themselves; never logged.
        volume_gib: size of the root disk; zero: the image's.
        private_ip_only: no public address.
        labels: of the node that it will be; for providers that start the agent themselves.
        tags: for people, besides the tags of the cluster and the machine.
    """

    token: str
    offerings: tuple[MachineOffering, ...]
    image: str = ""
    user_data: str = field(default="", repr=False)
    join_token: str = field(default="", repr=False)
    volume_gib: int = 0
    private_ip_only: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interruption:
    """A notice that an instance will be taken away.

    Attributes:
        instance_id: which.
        reason: for people.
        within_s: seconds until it happens, as the provider promises; zero: at any moment.
        rebalance: it is a warning, not a decision.
    """

    instance_id: str
    reason: str
    within_s: float = 0.0
    rebalance: bool = False


class Provider(Protocol):
    """Makes machines. See the module's docstring for the contract.

    Every call may be cancelled, which leaves open whether it was done. Calls that block run in
    threads of the provider.
    """

    @property
    def can_stop(self) -> bool:
        """Whether instances can be switched off and kept (``stop`` and ``start``)."""

    @property
    def can_wipe(self) -> bool:
        """Whether ``wipe`` makes a used machine as new."""

    async def catalogue(self) -> Sequence[InstanceType]:
        """What can be bought, sorted by name.

        Raises:
            ProviderError: it cannot be read.
        """

    async def resolve_image(self, spec: Mapping[str, str]) -> str:
        """The newest image that matches.

        Raises:
            MisconfiguredError: none does.
            ProviderError: it cannot be found out.
        """

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launch, or find what was launched under the token.

        Raises:
            CapacityError: none of the offerings can be had; nothing was launched.
            MisconfiguredError, ThrottledError: nothing was launched.
            InstanceGoneError: what was launched under the token has ended.
            ProviderError: it is not known whether something was launched.
        """

    async def instances(self) -> Sequence[Instance]:
        """All instances of the cluster, in no order.

        Raises:
            ProviderError: they cannot be listed; nothing may be concluded.
        """

    async def terminate(self, instance_id: str) -> None:
        """Begin to end an instance; again does nothing.

        Raises:
            ProviderError: it may not have begun.
        """

    async def stop(self, instance_id: str) -> None:
        """Begin to switch an instance off; where ``can_stop``.

        Raises:
            InstanceGoneError: there is none.
            ProviderError: it may not have begun.
        """

    async def start(self, instance_id: str) -> None:
        """Begin to switch an instance on; where ``can_stop``.

        Raises:
            InstanceGoneError: there is none.
            CapacityError: it cannot be had now.
            ProviderError: it may not have begun.
        """

    async def wipe(self, instance_id: str) -> None:
        """Remove all that a holder left on the machine; where ``can_wipe``. Returns when it is done.

        Raises:
            ProviderError: it is not known to be clean.
        """

    async def resize_volume(self, instance_id: str, gib: int) -> bool:
        """Grow the root disk; False where the provider cannot.

        Raises:
            ProviderError: it may not have grown.
        """

    def interruptions(self) -> AsyncGenerator[Interruption, bool | None]:
        """Notices until cancelled; ends at once where the provider has none.

        A notice is forgotten when the next one is asked for. One that is answered by False (``asend``) comes
        again some time later.
        """

    async def close(self) -> None:
        """End threads and connections; instances stay."""
