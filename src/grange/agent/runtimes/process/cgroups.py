"""Control groups for containers with limits, where the agent may make them.

Version 2 is one directory for each container, version 1 one in each hierarchy. They lie below a
directory of the data directory's name, next to the agent's own group: what an agent was given by its
supervisor (``Delegate=yes`` of systemd) is all that it uses. A container without limits has no group.
Everything here blocks and is called through an ``Offload``.
"""

import hashlib
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grange.agent.container_runtime import ContainerID, ContainerLimits, RuntimeFailedError
from grange.agent.runtimes.process import control_group

_PERIOD_US = 100_000
_SHORTEST_US = 1_000
_MOST_PROCESSES = 16_384  # of one container; a fork bomb ends there and not with the machine
_NEEDED = ("cpu", "memory")
_USED = ("cpu", "memory", "pids", "cpuacct")
_SERVER = "grange-server"


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What a group has used.

    Attributes:
        cpu_s: seconds of CPU since it was made; None where the kernel does not count them.
        memory_bytes: its working set: without files that the kernel can drop at once.
    """

    cpu_s: float | None
    memory_bytes: int


class ControlGroups:
    """The groups of one data directory's containers.

    Args:
        parents: by controller, the directory below which groups are made; one and the same for
            all in version 2.
        is_unified: whether that is version 2.
    """

    def __init__(self, parents: Mapping[str, Path], *, is_unified: bool) -> None:
        self._parents = dict(parents)
        self._is_unified = is_unified

    def make(self, target: ContainerID, limits: ContainerLimits) -> tuple[str, ...]:
        """Make the groups of an attempt with its limits; answers with their directories.

        Raises:
            RuntimeFailedError: the kernel refuses.
        """
        directories = self.directories(target)
        try:
            for directory in directories:
                Path(directory).mkdir(parents=True, exist_ok=True)
            for controller, name, value in self._settings(limits):
                path = self._parents[controller] / _name(target) / name
                if path.exists() or not name.startswith("memory.memsw"):
                    path.write_text(value, encoding="ascii")
        except OSError as error:
            self.remove(target)
            raise RuntimeFailedError(
                f"{target}: cannot limit it: {error.filename}: {error.strerror}; "
                "check resources.limits, and the control groups of this machine"
            ) from error
        return directories

    def change(self, target: ContainerID, limits: ContainerLimits) -> None:
        """Let the groups of an attempt that runs have other limits.

        Raises:
            RuntimeFailedError: it uses more memory than it may have, or the kernel refuses.
        """
        used = self.usage(target)
        if limits.memory_bytes and used is not None and used.memory_bytes > limits.memory_bytes:
            raise RuntimeFailedError(
                f"the memory limit cannot be {limits.memory_bytes}: {used.memory_bytes} are in use"
            )
        settings = self._settings(limits)
        failure: OSError | None = None
        for _ in range(2):  # version 1: of the two limits of memory the larger one goes first
            left = []
            for setting in settings:
                controller, name, value = setting
                path = self._parents[controller] / _name(target) / name
                try:
                    if path.exists() or not name.startswith("memory.memsw"):
                        path.write_text(value, encoding="ascii")
                except OSError as error:
                    failure = error
                    left.append(setting)
            if not left:
                return
            settings = left
        raise RuntimeFailedError(f"cannot change its limits: {failure}") from failure

    def _settings(self, limits: ContainerLimits) -> list[tuple[str, str, str]]:
        """Controller, file and content; in an order that the kernel takes."""
        quota = max(_SHORTEST_US, limits.cpu_milli * _PERIOD_US // 1000)
        memory, most = str(limits.memory_bytes), str(_MOST_PROCESSES)
        found = []
        if self._is_unified:
            if limits.cpu_milli:
                found.append(("cpu", "cpu.max", f"{quota} {_PERIOD_US}"))
            if limits.memory_bytes:
                found.append(("memory", "memory.max", memory))
                found.append(("memory", "memory.oom.group", "1"))
        else:
            if limits.cpu_milli:
                found.append(("cpu", "cpu.cfs_period_us", str(_PERIOD_US)))
                found.append(("cpu", "cpu.cfs_quota_us", str(quota)))
            if limits.memory_bytes:
                found.append(("memory", "memory.limit_in_bytes", memory))
                found.append(("memory", "memory.memsw.limit_in_bytes", memory))
        if "pids" in self._parents:
            found.append(("pids", "pids.max", most))
        return found

    def directories(self, target: ContainerID) -> tuple[str, ...]:
        """Where the groups of an attempt are, if it has any."""
        return tuple(
            dict.fromkeys(str(parent / _name(target)) for parent in self._parents.values())
        )

    def usage(self, target: ContainerID) -> GroupUsage | None:
        """What the groups of an attempt have used; None where it has none."""
        try:
            if self._is_unified:
                directory = self._parents["memory"] / _name(target)
                used = int((directory / "memory.current").read_text())
                cold = _field(directory / "memory.stat", "inactive_file")
                cpu_s = _field(directory / "cpu.stat", "usage_usec") / 1e6
                return GroupUsage(cpu_s, max(0, used - cold))
            directory = self._parents["memory"] / _name(target)
            used = int((directory / "memory.usage_in_bytes").read_text())
            cold = _field(directory / "memory.stat", "total_inactive_file")
            seconds = None
            if "cpuacct" in self._parents:
                counter = self._parents["cpuacct"] / _name(target) / "cpuacct.usage"
                seconds = int(counter.read_text()) / 1e9
            return GroupUsage(seconds, max(0, used - cold))
        except (OSError, ValueError):
            return None

    def kill(self, target: ContainerID) -> int:
        """Kill all that is in the groups of an attempt; answers with how many were found."""
        killed: set[int] = set()
        for _ in range(10):  # a process may fork while we look
            found = self._members(target)
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not found - killed:
                break
            killed |= found
        return len(killed)

    def _members(self, target: ContainerID) -> set[int]:
        found: set[int] = set()
        for directory in self.directories(target):
            with suppress(OSError, ValueError):
                found.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
        return found

    def remove(self, target: ContainerID) -> None:
        """Remove the groups of an attempt that has ended; nothing happens where it has none."""
        control_group.remove(self.directories(target))

    def prune(self, live: Collection[ContainerID]) -> None:
        """Remove the groups of attempts that are no more, and kill what is in them."""
        names = {_name(target) for target in live}
        for parent in set(self._parents.values()):
            with suppress(OSError):
                for item in parent.iterdir():
                    target = _target(item.name) if item.is_dir() else None
                    if target is not None and item.name not in names:
                        self.kill(target)
                        self.remove(target)

    def close(self) -> None:
        """Remove the directory of them all, unless something is left in it."""
        for parent in set(self._parents.values()):
            with suppress(OSError):
                parent.rmdir()


def of_data_dir(data_dir: Path) -> ControlGroups | None:
    """The groups for the containers of a data directory; None where there can be none."""
    return find(name_of(data_dir))


def name_of(data_dir: Path) -> str:
    """The directory of the groups for the containers of a data directory."""
    digest = hashlib.sha256(str(data_dir).encode()).hexdigest()
    return f"grange-{digest[:8]}"


def find(name: str, root: Path = Path("/")) -> ControlGroups | None:
    """The groups that this process may make; None where it may not, or where controllers lack.

    Args:
        name: of the directory of them all.
        root: of the file system that shows the groups of this process.
    """
    try:
        own = _own_groups(root)
        mounts = _mounts(root)
    except (OSError, ValueError):
        return None
    parents = {item: mounts[item] / own[item] for item in _USED if item in own and item in mounts}
    if all(item in parents for item in _NEEDED):
        return _opened(parents, name)
    if "" in own and "" in mounts:
        return _unified(mounts[""] / own[""], name)
    return None


def _opened(parents: Mapping[str, Path], name: str) -> ControlGroups | None:
    found = {}
    for controller, parent in parents.items():
        directory = parent / name
        try:
            directory.mkdir(exist_ok=True)
        except OSError:
            if controller in _NEEDED:
                return None
            continue
        if os.access(directory, os.W_OK):
            found[controller] = directory
    return ControlGroups(found, is_unified=False) if set(_NEEDED) <= set(found) else None


def _unified(own: Path, name: str) -> ControlGroups | None:
    try:
        offered = (own / "cgroup.controllers").read_text().split()
        used = [item for item in ("cpu", "memory", "pids") if item in offered]
        if not set(_NEEDED) <= set(used):
            return None
        wanted = " ".join(f"+{item}" for item in used)
        directory = own / name
        directory.mkdir(exist_ok=True)
        _delegate(own, wanted)
        (directory / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
    except OSError:
        return None
    return ControlGroups(dict.fromkeys(used, directory), is_unified=True)


def _delegate(own: Path, wanted: str) -> None:
    """Let groups below our own have controllers: then no process may be in that itself.

    Raises:
        OSError: processes that are not ours are in it, too.
    """
    control = own / "cgroup.subtree_control"
    try:
        control.write_text(wanted, encoding="ascii")
    except OSError:
        leaf = own / _SERVER
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text("0", encoding="ascii")
        try:
            control.write_text(wanted, encoding="ascii")
        except OSError:
            (own / "cgroup.procs").write_text("0", encoding="ascii")
            leaf.rmdir()
            raise


def _own_groups(root: Path) -> dict[str, str]:
    """By controller, the path of our own group; of version 2 by the empty name."""
    found = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path.lstrip("/")
    return found


def _mounts(root: Path) -> dict[str, Path]:
    """By controller, where its hierarchy is mounted; of version 2 by the empty name."""
    found: dict[str, Path] = {}
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        where = root / before.split()[4].lstrip("/")
        if kind == "cgroup2":
            found.setdefault("", where)
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, where)
    return found


def _field(path: Path, name: str) -> int:
    with path.open(encoding="ascii") as lines:
        for line in lines:
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _name(target: ContainerID) -> str:
    return f"{target.pod_uid}.{target.container}.{target.attempt}"


def _target(name: str) -> ContainerID | None:
    parts = name.rsplit(".", 2)
    return ContainerID(parts[0], parts[1], int(parts[2])) if len(parts) == 3 else None
