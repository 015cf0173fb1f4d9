"""What machines cost an hour and have cost since their boot, from their records: pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from grange.api import timestamps
from grange.api.kinds.machine import ON_DEMAND, SPOT, Machine
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.base.plurals import counted
from grange.cli import machine_board, machine_timeline
from grange.cli.printers import table

_HEAD = ("NAME", "POOL", "TYPE", "MARKET", "PHASE", "PRICE/H", "ON FOR", "SPENT")
_P = MachinePhase
_NOT_PAID = frozenset({_P.STOPPED, _P.TERMINATED})
_CENTS = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class MachineCost:
    """One machine.

    Attributes:
        machine: its record.
        price: of an hour; None where it is not known.
        on: how long it was launched and not switched off.
        spent: price of that time; None where the price is not known.
    """

    machine: Machine
    price: Decimal | None
    on: timedelta
    spent: Decimal | None


def costs(machines: Iterable[Machine], now: datetime) -> list[MachineCost]:
    """What each machine costs, by pool and name."""
    found = sorted(machines, key=lambda one: (one.spec.pool, one.metadata.name))
    return [_cost(machine, now) for machine in found]


def _cost(machine: Machine, now: datetime) -> MachineCost:
    price, launched = machine_board.price_of(machine), machine.status.launch_time
    on = timedelta()
    if launched:
        since = timestamps.parse(launched)
        for phase, start, end in machine_timeline.phases(machine, now):
            if phase not in _NOT_PAID:
                on += max(timedelta(), end - max(start, since))
    if price is None:
        return MachineCost(machine, None, on, None)
    spent = price * Decimal(int(on.total_seconds())) / 3600
    return MachineCost(machine, price, on, spent.quantize(_CENTS))


def per_hour(found: Iterable[MachineCost]) -> Decimal:
    """What the machines that run cost an hour."""
    running = (one for one in found if one.on and one.machine.phase not in _NOT_PAID)
    return sum((one.price for one in running if one.price is not None), Decimal(0))


def spent(found: Iterable[MachineCost]) -> Decimal:
    """What all of them have cost."""
    return sum((one.spent for one in found if one.spent is not None), Decimal(0))


def lines(found: Sequence[MachineCost]) -> list[str]:
    """The table, and what all machines cost together."""
    unknown = sum(one.price is None for one in found)
    aside = f"; the price of {unknown} is not known" if unknown else ""
    machines = counted(len(found), "machine")
    total = f"{machines}, {per_hour(found)} per hour, {spent(found)} spent{aside}"
    return [*table.render([_HEAD, *map(_row, found)]), "", total]


def document(found: Sequence[MachineCost]) -> Document:
    """The costs for programs; amounts are decimal text."""
    return {
        "pricePerHour": str(per_hour(found)),
        "spent": str(spent(found)),
        "machines": [
            {
                "name": one.machine.metadata.name,
                "pool": one.machine.spec.pool,
                "phase": one.machine.phase.value,
                "pricePerHour": "" if one.price is None else str(one.price),
                "onSeconds": int(one.on.total_seconds()),
                "spent": "" if one.spent is None else str(one.spent),
            }
            for one in found
        ],
    }


def _row(one: MachineCost) -> list[str]:
    machine, status = one.machine, one.machine.status
    spot = status.spot if status.instance_id else machine.spec.spot
    return [
        machine.metadata.name,
        machine.spec.pool,
        status.instance_type or machine.spec.instance_type,
        SPOT if spot else ON_DEMAND,
        machine.phase.value,
        "" if one.price is None else str(one.price),
        timestamps.age(one.on.total_seconds()),
        "" if one.spent is None else str(one.spent),
    ]
