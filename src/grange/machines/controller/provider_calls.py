"""Calls to a provider for one machine, and what their answers mean for its record.

A call that fails or is not answered in time may have been done: nothing is concluded from it, and the
next list of instances shows what is. Only errors that promise that nothing was launched end a machine.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePool
from grange.api.machine_phases import MachineEvent
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.machines.controller.launch_budgets import LaunchBudgets, offering_of
from grange.machines.controller.launch_refusals import LaunchRefusals
from grange.machines.controller.metrics import LAUNCHED, MachineInstruments
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceGoneError,
    LaunchRequest,
    MisconfiguredError,
    Provider,
    ProviderError,
    ThrottledError,
)
from grange.machines.scaling.capacity_memory import QUOTA_S, SHORTAGE_S, CapacityMemory

T = TypeVar("T")

MISCONFIGURED = "Misconfigured"
"""Reason of a launch that is refused whatever is ordered, and of a pool whose launches are."""

_REASONS: dict[type[ProviderError], str] = {
    CapacityError: "InsufficientCapacity",
    MisconfiguredError: MISCONFIGURED,
    InstanceGoneError: "InstanceGone",
}


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to.

    Attributes:
        machine: its record after the call.
        done: it was answered, or refused for good; False: it may have been done, and is made again.
        retry_after_s: the provider asks to wait so long.
    """

    machine: Machine
    done: bool
    retry_after_s: float = 0.0


class ProviderCalls:
    """Calls one provider.

    Args:
        provider: which.
        updater: writes the answers.
        memory: of what the provider could not give.
        clock: time.
        metrics: counts launches.
        timeout_s: a call takes no longer.

    Attributes:
        provider: which.
        refusals: of launches that pools can have none of.
        budgets: of launches by offering.
    """

    def __init__(
        self,
        provider: Provider,
        updater: StatusUpdater,
        memory: CapacityMemory,
        clock: Clock,
        metrics: MachineInstruments,
        *,
        timeout_s: float,
    ) -> None:
        self.provider, self.refusals = provider, LaunchRefusals()
        self.budgets = LaunchBudgets()
        self._updater, self._memory = updater, memory
        self._clock, self._metrics, self._timeout_s = clock, metrics, timeout_s

    async def launch(
        self, machine: Machine, request: LaunchRequest, pool: NodePool | None
    ) -> CallResult:
        """Launch, and write the instance or the refusal; the launch time is on record before.

        Args:
            machine: its record.
            request: what is asked for.
            pool: of the machine; None where it is gone.

        Raises:
            ApiError: the answer is not written. The next list of instances shows it.
        """
        try:
            found = await self.within("launch", self.provider.launch(request))
        except (CapacityError, MisconfiguredError, InstanceGoneError) as error:
            self._metrics.refused(machine, error)
            if isinstance(error, CapacityError):
                self._remember(request, error)
            if isinstance(error, MisconfiguredError) and pool is not None:
                # Before the record ends, which makes a pass order the next machine.
                self.refusals.refuse(pool, f"{error}", self._clock.now())
            refused = await self._updater.report(
                machine,
                MachineEvent.LAUNCH_REFUSED,
                reason=_REASONS[type(error)],
                message=f"{error}",
            )
            return CallResult(refused, done=True)
        except ProviderError as error:
            self._metrics.refused(machine, error)
            if isinstance(error, ThrottledError):
                first, now = offering_of(machine.spec), self._clock.now()
                self.budgets.throttled(first, error.retry_after_s, f"{error}", now)
            return await self._failed(machine, error)
        self._metrics.launched(machine, LAUNCHED)
        self._memory.allow(found.instance_type, found.zone, spot=found.spot)
        self.budgets.taken(offering_of(machine.spec), found)
        if pool is not None:
            self.refusals.allow(pool)
        moved = await self._updater.report(
            machine,
            MachineEvent.LAUNCHED,
            reason="Launched",
            message=f"instance {found.id}",
            fields=instance_fields(found),
        )
        return CallResult(moved, done=True)

    async def terminate(self, machine: Machine, instance: Instance) -> CallResult:
        """Begin to end the instance. Only lists show that it is gone.

        Raises:
            ApiError: an error of the call is not written.
        """
        return await self._simple(machine, "terminate", self.provider.terminate(instance.id))

    async def stop(self, machine: Machine, instance: Instance) -> CallResult:
        """Begin to switch the instance off. Only lists show that it is off.

        Raises:
            ApiError: an error of the call is not written.
        """
        return await self._simple(machine, "stop", self.provider.stop(instance.id))

    async def start(self, machine: Machine, instance: Instance) -> CallResult:
        """Begin to switch the instance on. Only lists show that it runs.

        Raises:
            ApiError: an error of the call is not written.
        """
        return await self._simple(machine, "start", self.provider.start(instance.id))

    async def wipe(self, machine: Machine, instance_id: str) -> CallResult:
        """Remove what the holder left, and give the machine back.

        Raises:
            ApiError: the answer is not written; the machine is wiped again.
        """
        result = await self._simple(machine, "wipe", self.provider.wipe(instance_id))
        if not result.done:
            return result
        clean = await self._updater.report(
            result.machine, MachineEvent.CLEANED, reason="Wiped", message="nothing of it is left"
        )
        return CallResult(clean, done=True)

    async def within(self, call: str, answer: Awaitable[T]) -> T:
        """The answer of a call.

        Raises:
            ProviderError: an error, or no answer in time.
        """
        try:
            async with self._clock.timeout(self._timeout_s):
                return await answer
        except TimeoutError as error:
            raise ProviderError(
                f"{call}: no answer within {self._timeout_s:g} s; it is tried again"
            ) from error

    async def _simple(self, machine: Machine, call: str, answer: Awaitable[None]) -> CallResult:
        try:
            await self.within(call, answer)
        except ProviderError as error:
            return await self._failed(machine, error)
        return CallResult(machine, done=True)

    async def _failed(self, machine: Machine, error: ProviderError) -> CallResult:
        if machine.status.last_error != f"{error}":
            machine = await self._updater.update(machine, {"lastError": f"{error}"})
        wait_s = error.retry_after_s if isinstance(error, ThrottledError) else 0.0
        return CallResult(machine, done=False, retry_after_s=wait_s)

    def _remember(self, request: LaunchRequest, error: CapacityError) -> None:
        tried = request.offerings if error.offering is None else (error.offering,)
        for one in tried:
            self.budgets.short((one.instance_type, one.zone, one.spot))
            self._memory.refuse(
                one.instance_type,
                "" if error.whole_type else one.zone,
                spot=one.spot,
                now=self._clock.now(),
                wait_s=QUOTA_S if error.quota else SHORTAGE_S,
                reason=f"{error}",
            )


def instance_fields(found: Instance) -> Document:
    """The fields of a status that show an instance; what the provider does not know stays as it is."""
    known = {
        "instanceID": found.id,
        "instanceType": found.instance_type,
        "zone": found.zone,
        "spot": found.spot,
        "pricePerHour": found.price_per_hour,
        "addresses": msgspec.to_builtins(found.addresses),
    }
    return {field: value for field, value in known.items() if value not in ("", [])}
