"""What a pool may still order within its limits."""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation

from grange.api import quantity
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import PoolLimits
from grange.api.machine_phases import MachinePhase
from grange.machines.scaling.instance_selector import InstanceSelector, MachineChoice


class PoolBudget:
    """Counts what a pool has, and what a plan adds to it.

    Args:
        limits: of the pool.
        selector: knows types and prices.
        machines: of the pool; those that have ended do not count, those that are ending do.
    """

    def __init__(
        self, limits: PoolLimits, selector: InstanceSelector, machines: Iterable[Machine]
    ) -> None:
        self._limits = limits
        self._has_limits = (
            limits.machines is not None or bool(limits.price_per_hour) or bool(limits.resources)
        )
        self._count = 0
        self._price = Decimal(0)
        self._resources: dict[str, int] = {}
        for machine in machines if self._has_limits else ():
            if machine.phase is MachinePhase.TERMINATED:
                continue
            self._count += 1
            self._price += _decimal(machine.status.price_per_hour or _ordered_price(machine))
            name = machine.status.instance_type or machine.spec.instance_type
            kind = selector.find(name)
            self._add({} if kind is None else kind.capacity)

    def within(self, choices: list[MachineChoice]) -> list[MachineChoice] | str:
        """The ways to get one more machine that no limit forbids, or what forbids the first."""
        if not self._has_limits:
            return choices
        refusals = [self._refusal(choice) for choice in choices]
        allowed = [c for c, refused in zip(choices, refusals, strict=True) if refused is None]
        return allowed or refusals[0] or "limits"

    def _refusal(self, choice: MachineChoice) -> str | None:
        limits = self._limits
        if limits.machines is not None and self._count + 1 > limits.machines:
            return f"limits.machines: {self._count} of {limits.machines} are there"
        if limits.price_per_hour:
            price = self._price + choice.offering.price
            if price > _decimal(limits.price_per_hour):
                return f"limits.pricePerHour: {price} would exceed {limits.price_per_hour}"
        for name, most in limits.resources.items():
            held = self._resources.get(name, 0)
            more = quantity.milli(choice.instance_type.capacity.get(name, 0))
            if held + more > quantity.milli(most):
                return f"limits.resources[{name}]: {quantity.format_milli(held + more)} would exceed {most}"
        return None

    def take(self, choice: MachineChoice) -> None:
        """Count one more machine."""
        self._count += 1
        self._price += choice.offering.price
        self._add(choice.instance_type.capacity)

    def _add(self, capacity: Mapping[str, str]) -> None:
        for name in self._limits.resources:
            more = quantity.milli(capacity.get(name, 0))
            self._resources[name] = self._resources.get(name, 0) + more


def _ordered_price(machine: Machine) -> str:
    return machine.spec.candidates[0].price_per_hour if machine.spec.candidates else ""


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)
