"""A process that outlives its parent, identified so that no other process is ever signalled."""

import json
import os
import select
import signal
from contextlib import suppress
from enum import Enum
from pathlib import Path

_SCRIPT = """
mkdir "$GRANGE_MACHINE_RUN" 2>/dev/null || exit 0
{ cat /proc/sys/kernel/random/boot_id; cat "/proc/$$/stat"; } > "$GRANGE_MACHINE_RUN/process.new"
mv "$GRANGE_MACHINE_RUN/process.new" "$GRANGE_MACHINE_RUN/process"
[ -e "$GRANGE_MACHINE_RUN.ended" ] && exit 0
exec 3>&-
exec "$@"
"""
# The process records itself before it becomes the command, so that one whose parent died meanwhile
# is found. Of two that start for the same run, one makes the directory and the other ends. A run
# that is ended while it starts either is found by the file or finds the mark.


class EndOutcome(Enum):
    """What the end of a process came to.

    Attributes:
        ALIVE: it cannot be ended.
        CLEAN: it has ended when it was asked to, or never began.
        UNCLEAN: it was gone already, or had to be killed: what it has started may still run.
    """

    ALIVE = "alive"
    CLEAN = "clean"
    UNCLEAN = "unclean"


class MachineProcess:
    """One run of a machine.

    Args:
        run: directory of the run, which its process makes.
    """

    def __init__(self, run: Path) -> None:
        self._run = run

    def spawn(self, command: list[str], variables: dict[str, str], output: Path) -> None:
        """Start the command unless the run has a process, and wait until that has recorded itself.

        Raises:
            OSError: it cannot be started.
        """
        recorded, begun = os.pipe()
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), mode, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, begun, 3),  # closed when it has recorded itself, or ended
        ]
        try:
            os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _SCRIPT, "sh", *command],
                {"PATH": os.defpath, **variables, "GRANGE_MACHINE_RUN": str(self._run)},
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGTERM],
            )
            os.close(begun)
            begun = -1
            select.select([recorded], [], [], 5.0)
        finally:
            os.close(recorded)
            if begun >= 0:
                os.close(begun)

    @property
    def has_begun(self) -> bool:
        """Whether its process has recorded itself."""
        return (self._run / "process").exists()

    def is_alive(self) -> bool:
        """Whether its process runs."""
        pidfd = self._open()
        if pidfd is None:
            return False
        os.close(pidfd)
        return True

    @property
    def has_crashed(self) -> bool:
        """Whether its process has ended without being asked to, other than with the computer."""
        marked = self._run.with_name(f"{self._run.name}.ended").exists()
        return self._recorded()[0] == _boot() and not marked and not self.is_alive()

    def end(self, grace_s: float) -> EndOutcome:
        """End the process, by force after a grace.

        A process that has not recorded itself yet ends by itself.
        """
        self._run.with_name(f"{self._run.name}.ended").touch()
        pidfd = self._open()
        if pidfd is None:
            return EndOutcome.UNCLEAN if self.has_begun else EndOutcome.CLEAN
        try:
            for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, number)
                if select.select([pidfd], [], [], limit_s)[0] and not self.is_alive():
                    asked = number == signal.SIGTERM
                    return EndOutcome.CLEAN if asked else EndOutcome.UNCLEAN
            return EndOutcome.ALIVE
        finally:
            os.close(pidfd)

    def wait(self, limit_s: float) -> bool:
        """Wait until the process has ended; False where it takes longer."""
        pidfd = self._open()
        if pidfd is None:
            return True
        try:
            return bool(select.select([pidfd], [], [], limit_s)[0])
        finally:
            os.close(pidfd)

    def _open(self) -> int | None:
        """The process, which stays the same one while the descriptor is open; None: it has ended."""
        boot, recorded = self._recorded()
        if boot != _boot():
            return None
        try:
            pid = int(recorded.split()[0])
        except (ValueError, IndexError):
            return None
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # one that this process has started
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        try:
            now = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            now = ""
        if _started(now) == _started(recorded) and _state(now) not in {"", "Z", "X"}:
            return pidfd
        os.close(pidfd)
        return None

    def _recorded(self) -> tuple[str, str]:
        """The boot of the computer and the line of /proc/PID/stat that it recorded; empty for none."""
        try:
            boot, _, recorded = (self._run / "process").read_text().partition("\n")
        except OSError:
            return "", ""
        return boot, recorded


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _fields(stat: str) -> list[str]:
    return stat.rpartition(")")[2].split()


def _started(stat: str) -> str:
    """When the process of a line of /proc/PID/stat started, in ticks since boot."""
    fields = _fields(stat)
    return fields[19] if len(fields) > 19 else ""


def _state(stat: str) -> str:
    fields = _fields(stat)
    return fields[0] if fields else ""


def write_private(path: Path, content: str) -> None:
    """Write a file, readable for its owner only."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def write_whole(path: Path, content: object) -> None:
    """Replace a file of JSON, readable for its owner only, so that no reader sees a part of it."""
    fresh = path.with_name(f"{path.name}.new")
    write_private(fresh, json.dumps(content))
    fresh.replace(path)
