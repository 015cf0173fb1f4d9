"""What a control plane that was killed has left running on this computer."""

from pathlib import Path
from typing import NamedTuple

from grange.app import local_machines
from grange.app.datadir import make_directory, remembered_nodes
from grange.app.local_nodes import LocalNodes
from grange.app.settings import Settings
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger


class LeftRunning(GrangeError):
    """Some of it goes on; the message has the reasons."""


class Leftovers(NamedTuple):
    """What was ended.

    Attributes:
        machines: names of local machines.
        pods: ``namespace/name`` of pods of this computer's nodes.
    """

    machines: tuple[str, ...]
    pods: tuple[str, ...]


async def end(data_dir: Path, clock: Clock) -> Leftovers:
    """End the pods and machines of a data directory that nothing serves; the next start runs them again.

    Raises:
        DataDirectoryUnusable: others could have written what is read there.
        LeftRunning: a machine cannot be ended.
        RuntimeFailedError: another process starts to serve the directory.
    """
    if not (data_dir / "pods").is_dir():  # nothing ever ran
        return Leftovers((), ())
    make_directory(data_dir)
    settings = Settings(data_dir=data_dir, nodes=remembered_nodes(data_dir) or 1)
    async with LocalNodes(settings, clock=clock, log=Logger("down")) as nodes:
        pods = nodes.running()
        machines = await local_machines.halt(settings)
    if machines.errors:
        raise LeftRunning("; ".join(machines.errors))
    return Leftovers(machines.halted, pods)
