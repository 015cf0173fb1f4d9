"""Processes whose shim is gone: found by a mark in their environment, and killed.

Only needed when a shim itself was killed; a shim that ends in order leaves nothing behind.
"""

import os
import signal
from collections.abc import Collection, Sequence

from grange.agent.container_runtime import ContainerID
from grange.agent.runtimes.process import shim, shim_connection
from grange.agent.runtimes.process.cgroups import ControlGroups
from grange.agent.runtimes.process.child_processes import MARK
from grange.agent.runtimes.process.environments import environment_of
from grange.agent.runtimes.process.files import Layout
from grange.base.clock import Clock
from grange.base.log import Logger


class Undertaker:
    """Ends what lost shims left running, and records that the cause of its end is unknown.

    Args:
        layout: where attempts are.
        clock: for the time of the end.
        log: where kills are logged.

    Attributes:
        groups: the control groups of attempts, where there are any.
    """

    def __init__(self, layout: Layout, *, clock: Clock, log: Logger) -> None:
        self._layout = layout
        self._clock = clock
        self._log = log
        self.groups: ControlGroups | None = None

    def bury(self, target: ContainerID, state: dict[str, object]) -> dict[str, object]:
        """Kill what is left of an attempt and write its final state; answers with that state.

        Args:
            target: the attempt.
            state: what its shim last wrote; empty for nothing.
        """
        if state.get("boot") == shim.boot_id():
            pid, started = (
                shim_connection.number_of(state, "pid"),
                shim_connection.number_of(state, "pid_start"),
            )
            kill_exact(pid, started)
        self.kill([target])
        final = shim_connection.lost(state, self._clock.now())
        try:
            self._layout.write_state(target, final)
        except OSError as error:
            self._log.warning("cannot record a lost container", target=str(target), error=error)
        return final

    def kill(self, targets: Sequence[ContainerID]) -> None:
        """Kill whatever carries the mark of one of these attempts."""
        if self.groups is not None:
            for target in targets:
                self.groups.kill(target)
                self.groups.remove(target)
        killed = kill_marked({str(self._layout.attempt(target)) for target in targets})
        if killed:
            self._log.warning("killed processes whose supervisor was gone", count=killed)


def kill_marked(directories: Collection[str]) -> int:
    """Kill every process of this user that was started for one of these attempts.

    Args:
        directories: the attempts' directories, as the mark in the environment has them.

    Returns:
        How many processes were killed.
    """
    wanted = {f"{MARK}={directory}".encode() for directory in directories}
    killed: set[int] = set()
    for _ in range(10):  # a process may fork while we look; its children carry the mark as well
        found = [pid for pid in _processes() if not wanted.isdisjoint(environment_of(pid))]
        if not found:
            break
        killed.update(pid for pid in found if _kill(pid))
    return len(killed)


def kill_exact(pid: int, started: int) -> bool:
    """Kill a process and its group if it is still the one that started then."""
    if pid <= 1 or started == 0 or shim.start_time(pid) != started:
        return False
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return _kill(pid)
    return True


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
