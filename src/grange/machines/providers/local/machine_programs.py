"""Starts and ends the programs of machines."""

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grange.machines.providers.local.machine_home import ENDED, RUNNING, MachineHome
from grange.machines.providers.local.machine_process import (
    EndOutcome,
    MachineProcess,
    write_private,
)
from grange.machines.providers.provider import ProviderError

_GRACE_S = 10.0
_CLEANUP_S = 30.0


@dataclass(frozen=True, slots=True)
class MachineCommands:
    """What machines run.

    ``{machine}``, ``{data}``, ``{user_data}`` (a file), ``{labels}`` and ``{capacity}`` are replaced.

    Attributes:
        run: the machine; it finds its join token in ``$GRANGE_JOIN_TOKEN``.
        cleanup: ends the programs that a machine left running, where its process did not end when it
            was asked to. Empty: nothing is left.
        kept: names in the data directory that stay when a machine is wiped, e.g. its identity.
        environment: variables of the commands; they have no others but ``PATH``.
    """

    run: Sequence[str]
    cleanup: Sequence[str] = ()
    kept: Collection[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class MachinePrograms:
    """The programs of all machines. Everything blocks.

    Args:
        commands: what machines run.
    """

    def __init__(self, commands: MachineCommands) -> None:
        self._commands = commands

    def begin(self, home: MachineHome, record: Mapping[str, Any]) -> None:
        """Start the program of a machine, unless this run of it has begun already."""
        home.data.mkdir(exist_ok=True, mode=0o700)
        write_private(home.user_data, record["userData"])
        command, variables = self._filled(self._commands.run, home, record)
        if record.get("joinToken"):
            variables["GRANGE_JOIN_TOKEN"] = record["joinToken"]
        home.process(record).spawn(command, variables, home.output)

    def begin_again(self, home: MachineHome, record: Mapping[str, Any]) -> None:
        """Start the program of a machine whose last run has ended."""
        following = {**record, "wanted": RUNNING, "run": record["run"] + 1}
        home.write(following)
        self.begin(home, following)

    def end(self, home: MachineHome, record: Mapping[str, Any]) -> None:
        """End the program of a machine, and what it has started.

        Raises:
            ProviderError: it does not end.
        """
        outcome = home.process(record).end(_GRACE_S)
        if outcome is EndOutcome.ALIVE:
            raise ProviderError(f"machine {home.name}: its process does not end; try again")
        if outcome is EndOutcome.UNCLEAN and self._commands.cleanup and home.data.exists():
            self._clean_up(home, record)

    def remove(self, home: MachineHome) -> None:
        """End a machine for good: its program, its data and its secrets.

        Raises:
            ProviderError: its program does not end.
        """
        record = home.record() | {"wanted": ENDED, "userData": "", "joinToken": ""}
        home.write(record)
        self.end(home, record)
        _remove(home.data)
        home.user_data.unlink(missing_ok=True)

    def wipe(self, home: MachineHome) -> None:
        """Remove the data that do not stay; its program has ended."""
        _remove(home.data, self._commands.kept)

    def _clean_up(self, home: MachineHome, record: Mapping[str, Any]) -> None:
        command, variables = self._filled(self._commands.cleanup, home, record)
        place = home.path / f"cleanup-{record['run']}"
        shutil.rmtree(place, ignore_errors=True)
        place.with_name(f"{place.name}.ended").unlink(missing_ok=True)
        run = MachineProcess(place)
        run.spawn(command, variables, home.output)
        if not run.wait(_CLEANUP_S):
            run.end(0.0)
            raise ProviderError(f"machine {home.name}: its programs do not end; try again")

    def _filled(
        self, command: Sequence[str], home: MachineHome, record: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, str]]:
        """A command of a machine, and its variables."""
        replaced = {
            "{machine}": home.name,
            "{data}": str(home.data),
            "{user_data}": str(home.user_data),
            "{labels}": _pairs(record["labels"]),
            "{capacity}": _pairs(record.get("capacity", {})),
        }
        # The environment of the control plane may hold secrets: none of it is inherited.
        variables = {**self._commands.environment, "GRANGE_MACHINE": home.name}
        return [_replaced(word, replaced) for word in command], variables


def _remove(data: Path, kept: Collection[str] = ()) -> None:
    """Remove a directory, or what it has under other names than these."""
    if not data.exists():
        return
    if not kept:
        shutil.rmtree(data)
        return
    for path in data.iterdir():
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _pairs(values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(values.items()))


def _replaced(word: str, replaced: Mapping[str, str]) -> str:
    pattern = "|".join(re.escape(key) for key in replaced)
    return re.sub(pattern, lambda found: replaced[found.group()], word)
