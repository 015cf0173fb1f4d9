"""The files that record which process serves a data directory, and how to stop that process."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grange.app.datadir import DataDirectoryUnusable, write
from grange.base.clock import Clock
from grange.base.errors import GrangeError

FILE = "up.json"
_POLL_S = 0.05


class NotRunning(GrangeError):
    """No process serves the data directory."""


@dataclass(frozen=True, slots=True)
class Served:
    """A process that serves a data directory.

    Attributes:
        pid: its process id.
        start: its start time in kernel ticks, so that a recycled pid is not mistaken for it.
        url: where it serves.
        context: the context that it added to the user's kubeconfig; empty for none.
    """

    pid: int
    start: int
    url: str
    context: str = ""


def record(data_dir: Path, url: str, context: str = "") -> Served:
    """Write that this process serves the directory.

    Raises:
        DataDirectoryUnusable: it cannot be written.
    """
    served = Served(os.getpid(), start_ticks(os.getpid()) or 0, url, context)
    write(data_dir / FILE, msgspec.json.encode(served))
    return served


def forget(data_dir: Path) -> None:
    """This process serves the directory no more.

    A file that cannot be removed (the directory became read-only) names a process that has ended,
    which ``find`` notices.
    """
    with suppress(OSError):
        (data_dir / FILE).unlink(missing_ok=True)


def find(data_dir: Path) -> Served | None:
    """The living process that serves the directory.

    Raises:
        DataDirectoryUnusable: the directory cannot be read.
    """
    try:
        served = msgspec.json.decode((data_dir / FILE).read_bytes(), type=Served)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    except OSError as error:
        raise DataDirectoryUnusable(
            f"cannot read {data_dir / FILE}: {error.strerror}; see --data-dir"
        ) from error
    return served if start_ticks(served.pid) == served.start else None


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc(5), field 22); None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


async def end(data_dir: Path, *, timeout_s: float, clock: Clock) -> Served:
    """Ask the process that serves the directory to stop, and wait until it has.

    Raises:
        NotRunning: there is none.
        TimeoutError: it is still there after ``timeout_s`` seconds.
    """
    served = find(data_dir)
    if served is None:
        raise NotRunning(f"nothing serves {data_dir}; see --data-dir")
    if (data_dir / FILE).stat().st_uid != os.geteuid():
        raise DataDirectoryUnusable(
            f"{data_dir / FILE} was written by another user; stop process {served.pid} yourself"
        )
    os.kill(served.pid, signal.SIGTERM)
    async with clock.timeout(timeout_s):
        while start_ticks(served.pid) == served.start:
            await clock.sleep(_POLL_S)
    return served
