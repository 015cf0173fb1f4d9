"""The runs that a node interrupted because it was stopped in an orderly way.

Programs end with the node that they run on, and their exit codes have no meaning then. A file has the runs that were at
work when the stop began, for the agent that comes next. Runs that it finds at work after all, because the
stop itself was cut off, are struck off.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from grange.agent.container_runtime import ContainerID, PodRecord
from grange.agent.pod_directory import write_atomically
from grange.base.log import Logger
from grange.base.offload import Offload

FILE = "interrupted-runs.json"


class Stoppable(Protocol):
    """What a stop needs of a ``NodeRuntime``."""

    def pods(self) -> list[PodRecord]:
        """All that it keeps."""

    async def stop_all(self, grace_s: float) -> None:
        """End every container."""


async def stop_all(
    runtime: Stoppable, directory: Path, grace_s: float, *, offload: Offload, log: Logger
) -> None:
    """End every container of a node that is being stopped, and note which ones ran.

    Args:
        runtime: of the node.
        directory: where the note is kept: the data of the node.
        grace_s: seconds between SIGTERM and SIGKILL.
        offload: runs what blocks.
        log: where it is reported that nothing could be noted; containers are ended in any case.
    """
    path, running = directory / FILE, set(_running(runtime))
    known = {run.id for record in runtime.pods() for run in record.runs}

    def note() -> None:
        # Those of an earlier stop count until their pods are gone: no agent may have reported them since.
        _write(path, running | (known & set(_read(path))))

    try:
        await offload.run(note)
    except OSError as error:
        log.error("cannot note which containers are interrupted", error=str(error))
    await runtime.stop_all(grace_s)


async def take_over(
    runtime: Stoppable, directory: Path, offload: Offload
) -> frozenset[ContainerID]:
    """The runs that the last stop interrupted.

    Raises:
        OSError: what was noted can be neither read nor written.
    """
    path, running = directory / FILE, set(_running(runtime))
    noted = await offload.run(lambda: _read(path))
    left = frozenset(noted) - running
    if len(left) < len(noted):
        await offload.run(lambda: _write(path, left))
    return left


def _running(runtime: Stoppable) -> list[ContainerID]:
    return [run.id for record in runtime.pods() for run in record.runs if run.running]


def _write(path: Path, runs: Iterable[ContainerID]) -> None:
    write_atomically(path, msgspec.json.encode(sorted(runs)))


def _read(path: Path) -> list[ContainerID]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[ContainerID])
    except (FileNotFoundError, msgspec.DecodeError):
        return []  # never stopped, or the power went: then programs count as they ended
