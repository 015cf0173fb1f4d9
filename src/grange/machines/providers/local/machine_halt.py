"""Ends the programs of all machines while no control plane runs; the next one starts them again."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from grange.base.offload import Threads
from grange.base.tasks import Nursery
from grange.machines.providers.local.machine_home import HALTED, RUNNING, MachineHome, homes
from grange.machines.providers.local.machine_programs import MachinePrograms
from grange.machines.providers.provider import ProviderError

_AT_ONCE = 16


class HaltResult(NamedTuple):
    """What became of the machines of a directory.

    Attributes:
        halted: names of those whose programs have ended, sorted.
        errors: why others go on.
    """

    halted: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def running(directory: Path) -> tuple[str, ...]:
    """Names of the machines of all clusters of a directory that have a process, sorted."""
    found = [home.name for home in _homes(directory) if home.process(home.record()).is_alive()]
    return tuple(sorted(found))


async def halt(directory: Path, programs: MachinePrograms) -> HaltResult:
    """End the programs of all machines of a directory, many at once.

    Their data stay. A machine whose process has crashed ends for good, as its control plane would have
    it.
    """
    threads = Threads("halt", workers=_AT_ONCE)
    try:
        async with Nursery("halt") as nursery:
            ends = [
                nursery.start(threads.run(partial(_halt, home, programs)), name=home.name)
                for home in _homes(directory)
            ]
    finally:
        threads.close()
    results = [end.result() for end in ends]
    return HaltResult(
        tuple(sorted(name for one in results for name in one.halted)),
        tuple(error for one in results for error in one.errors),
    )


def _halt(home: MachineHome, programs: MachinePrograms) -> HaltResult:
    try:
        record = home.record()
        process = home.process(record)
        alive, wanted = process.is_alive(), record["wanted"] == RUNNING
        crashed = wanted and process.has_crashed
        if crashed:
            programs.remove(home)
        elif wanted:
            record["wanted"] = HALTED
            home.write(record)
        if alive:
            programs.end(home, record)
    except (OSError, ProviderError) as error:
        return HaltResult(errors=(f"{error}",))
    return HaltResult((home.name,) if alive or crashed else ())


def _homes(directory: Path) -> Iterator[MachineHome]:
    if directory.is_dir():
        for cluster in sorted(directory.iterdir()):
            yield from homes(cluster)
