"""The directory of one machine: its record, its data, and the processes that it has had."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grange.machines.providers.local.machine_process import MachineProcess, write_whole
from grange.machines.providers.provider import ProviderError

RUNNING, STOPPED, HALTED, ENDED = "running", "stopped", "halted", "ended"
"""What a machine is wanted to be, as its record has it; a halted one runs again when the control plane does."""

_RECORD = "machine.json"


class MachineHome:
    """The directory of one machine.

    Args:
        path: named like the machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The machine."""
        return self.path.name

    @property
    def data(self) -> Path:
        """What its programs keep; gone when the machine has ended."""
        return self.path / "data"

    @property
    def user_data(self) -> Path:
        """The file with its user data."""
        return self.path / "user-data"

    @property
    def output(self) -> Path:
        """The log of its programs."""
        return self.path / "output.log"

    def record(self) -> dict[str, Any]:
        """What is recorded of it.

        Raises:
            ProviderError: the record is malformed.
        """
        try:
            found: dict[str, Any] = json.loads((self.path / _RECORD).read_text())
        except FileNotFoundError:
            # A launch that was interrupted before it had started anything; its token is used.
            found = {"type": "", "price": "", "labels": {}, "wanted": ENDED, "run": 1}
        except ValueError as error:
            raise ProviderError(
                f"{self.path}: its record is malformed: {error}; repair it"
            ) from error
        return found

    def write(self, record: Mapping[str, Any]) -> None:
        """Replace its record."""
        write_whole(self.path / _RECORD, dict(record))

    def process(self, record: Mapping[str, Any]) -> MachineProcess:
        """Its last process."""
        return MachineProcess(self.path / f"run-{record['run']}")


def homes(directory: Path) -> list[MachineHome]:
    """The machines of a directory that have a record, by name."""
    if not directory.is_dir():
        return []
    found = (path for path in sorted(directory.iterdir()) if (path / _RECORD).exists())
    return [MachineHome(path) for path in found]
