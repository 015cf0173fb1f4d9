"""Machines that go on running without the control plane: those that are not processes of this computer."""

from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec

from grange.api.kinds import MACHINE
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase
from grange.apiserver.storage import prefix
from grange.base.log import Logger
from grange.cli.machine_board import price_of
from grange.store.directory import DATABASE
from grange.store.errors import StoreBusy, StoreError
from grange.store.sqlite import SQLiteStore

_ENDS_HERE = "local"
"""The provider whose machines end with the control plane."""


class RemainingMachine(NamedTuple):
    """A machine at its provider.

    Attributes:
        name: of its record.
        pool, provider: where it is from.
        instance: as the provider knows it; empty while its launch is not answered.
        price: per hour; None where it is not known.
    """

    name: str
    pool: str
    provider: str
    instance: str
    price: Decimal | None


async def remaining(store: Path, log: Logger) -> tuple[RemainingMachine, ...]:
    """The machines of a store that goes unused, by name.

    Raises:
        StoreError: it is in use, or cannot be read.
    """
    if not (store / DATABASE).is_file():
        return ()
    opened = await SQLiteStore.open(store, log=log)
    try:
        entries = (await opened.list(prefix(MACHINE))).entries
    finally:
        await opened.close()
    found = [msgspec.json.decode(entry.value, type=Machine) for entry in entries]
    return tuple(
        RemainingMachine(
            one.metadata.name,
            one.spec.pool,
            one.spec.provider,
            one.status.instance_id,
            price_of(one),
        )
        for one in found
        if one.spec.provider != _ENDS_HERE
        and one.phase is not MachinePhase.TERMINATED
        and (one.status.launch_time or one.status.instance_id)
    )


async def reported(directory: Path, log: Logger) -> tuple[tuple[RemainingMachine, ...], list[str]]:
    """The machines that go on without the control plane of a data directory, and the text about them."""
    try:
        found = await remaining(directory / "store", log)
    except StoreBusy:  # it is served again
        return (), []
    except StoreError as error:
        return (), [f"machines of other computers may go on, their records cannot be read: {error}"]
    return found, lines(found)


def lines(machines: tuple[RemainingMachine, ...]) -> list[str]:
    """The text about them: which, for how much, and what ends them."""
    if not machines:
        return []
    known = [one.price for one in machines if one.price is not None]
    total = f", {sum(known, Decimal()):f} per hour" if known else ""
    named = ", ".join(f"{one.name} ({_where(one)})" for one in machines)
    pools = " ".join(sorted({one.pool for one in machines}))
    return [
        f"machines go on running at their providers{total}: {named}",
        "the next grange up takes care of them; to end them, run grange up, then "
        f"grange delete nodepool {pools}",
    ]


def _where(machine: RemainingMachine) -> str:
    return " ".join(word for word in (machine.provider, machine.instance) if word)
