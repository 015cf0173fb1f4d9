"""What shared pools may still order within their limits, counted by rows of options."""

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from grange.api import quantity
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePool, PoolLimits
from grange.api.machine_phases import MachinePhase
from grange.machines.catalogue import InstanceType
from grange.machines.scaling.machine_facts import type_of
from grange.machines.scaling.packing_options import MachineOptions, PackedPool, choices_of
from grange.placement.columns import Integers

_PRICE_UNIT = 1_000_000_000
_MOST = Decimal(2**53) / _PRICE_UNIT


class PoolAllowance:
    """What is left of one pool's limits.

    A machine that is planned counts as the largest that it can become: which offering it gets is the
    provider's choice.

    Args:
        pool: which.
        options: all rows.
        machines: that count: all that have not ended.
    """

    def __init__(
        self, pool: PackedPool, options: MachineOptions, machines: Iterable[Machine]
    ) -> None:
        limits = pool.pool.spec.limits
        self.limited = bool(limits.resources or limits.price_per_hour)
        """Whether it matters which machine is ordered."""
        self.unlimited = not self.limited and limits.machines is None
        """Whether the pool has no limits at all."""
        self._names = list(limits.resources)
        self._left_machines = limits.machines
        self._price = bool(limits.price_per_hour)
        self._costs: Integers = np.zeros((len(options.rows), self._width), np.int64)
        for at, row in enumerate(options.rows) if self.limited else ():
            if row.pool is pool:
                self._costs[at] = self._cost(row.kind.capacity, row.offering.price)
        self._left: Integers = np.asarray(self._totals(limits), np.int64)
        capacities = {kind.name: kind.capacity for kind in pool.catalogue}
        for machine in machines:
            if machine.spec.pool != pool.name or machine.phase is MachinePhase.TERMINATED:
                continue
            first = machine.spec.candidates[0].price_per_hour if machine.spec.candidates else ""
            price = _decimal(machine.status.price_per_hour or first)
            self.take(np.asarray(self._cost(capacities.get(type_of(machine), {}), price), np.int64))
            if self._left_machines is not None:
                self._left_machines -= 1

    @property
    def _width(self) -> int:
        return len(self._names) + self._price

    def _cost(self, capacity: object, price: Decimal) -> list[int]:
        held: dict[str, str] = capacity  # type: ignore[assignment]  # of an instance type
        found = [quantity.milli(held.get(name, 0)) for name in self._names]
        return [*found, int(min(price, _MOST) * _PRICE_UNIT)] if self._price else found

    def _totals(self, limits: PoolLimits) -> list[int]:
        found = [quantity.milli(limits.resources[name]) for name in self._names]
        price = int(min(_decimal(limits.price_per_hour), _MOST) * _PRICE_UNIT)
        return [*found, price] if self._price else found

    @property
    def machine_left(self) -> bool:
        """Whether one more machine may be ordered, whatever it is."""
        return self._left_machines is None or self._left_machines > 0

    def within(self, rows: Integers) -> Integers:
        """Of rows of the pool those that may be ordered."""
        if not self.machine_left:
            return rows[:0]
        if not self.limited:
            return rows
        within: Integers = rows[(self._costs[rows] <= self._left).all(axis=1)]
        return within

    def charge(self, rows: Integers) -> Integers:
        """What a machine counts that can become any of these rows."""
        most: Integers = self._costs[rows].max(axis=0)
        return most

    def cheap(self, rows: Integers) -> Integers:
        """The rows that count no more than the first."""
        kept: Integers = rows[(self._costs[rows] <= self._costs[rows[0]]).all(axis=1)]
        return kept

    def take(self, charge: Integers) -> None:
        """Count a charge; a negative one gives back."""
        self._left = self._left - charge

    def count(self, machines: int) -> None:
        """Count machines that are planned; negative for those that are not any more."""
        if self._left_machines is not None:
            self._left_machines -= machines

    def refusal(self, rows: Integers) -> str:
        """What forbids all of these rows of the pool; empty if nothing does."""
        if not self.machine_left:
            return "limits.machines: all are there"
        if not self.limited or len(self.within(rows)):
            return ""
        least = self._costs[rows].min(axis=0)
        for name, need, left in zip(self._names, least, self._left, strict=False):
            if need > left:
                shown = quantity.format_milli(int(max(left, 0)))
                return f"limits.resources[{name}]: {shown} left, {quantity.format_milli(int(need))} needed"
        return "limits: no type fits into what is left of them"


def machines_allowed(pool: NodePool, catalogue: Sequence[InstanceType]) -> int | None:
    """How many machines the limits of a pool allow, those of the type that counts least; None: no limit."""
    limits = pool.spec.limits
    if not catalogue or not (limits.resources or limits.price_per_hour):
        return limits.machines
    found = [0]
    for choice in choices_of(pool, catalogue):
        held = choice.instance_type.capacity
        bounds = [
            quantity.milli(total) // need
            for name, total in limits.resources.items()
            if (need := quantity.milli(held.get(name, 0)))
        ]
        if limits.price_per_hour and choice.offering.price:
            bounds.append(int(_decimal(limits.price_per_hour) // choice.offering.price))
        if not bounds:
            return limits.machines  # a type of which nothing is limited
        found.append(min(bounds))
    most = max(found)
    return most if limits.machines is None else min(most, limits.machines)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)
