"""The provider over processes of this computer; what it knows is in files, so a restart adopts it."""

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from grange.api.quantity import parse
from grange.base.offload import Threads
from grange.machines.catalogue import InstanceType
from grange.machines.providers.local.machine_home import (
    ENDED,
    HALTED,
    RUNNING,
    STOPPED,
    MachineHome,
    homes,
)
from grange.machines.providers.local.machine_programs import MachineCommands, MachinePrograms
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceGoneError,
    InstanceState,
    Interruption,
    LaunchRequest,
    MisconfiguredError,
    ProviderError,
)

T = TypeVar("T")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def computer_capacity() -> dict[str, str]:
    """Processors and memory of this computer."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": str(memory)}


class LocalProvider:
    """Machines as processes.

    Args:
        directory: of all machines; each has its own below the name of the cluster.
        cluster: whose machines.
        commands: what machines run.
        types: what can be launched, by name.
        capacity: what all running machines may have together.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        commands: MachineCommands,
        types: Mapping[str, InstanceType],
        capacity: Mapping[str, str],
    ) -> None:
        if not _NAME.fullmatch(cluster):
            raise MisconfiguredError(f"cluster {cluster!r}: no name for a directory; use another")
        self._root = directory / cluster
        self._programs, self._types = MachinePrograms(commands), types
        self._capacity = {name: parse(value) for name, value in capacity.items()}
        self._lane = Threads("local-machines")

    @property
    def can_stop(self) -> bool:
        """Its process ends and its data stay."""
        return True

    @property
    def can_wipe(self) -> bool:
        """Its data go and its process begins again."""
        return True

    async def catalogue(self) -> Sequence[InstanceType]:
        """The types, by name."""
        return [self._types[name] for name in sorted(self._types)]

    async def resolve_image(self, spec: Mapping[str, str]) -> str:
        """No image: a process has none.

        Raises:
            MisconfiguredError: the pool names one.
        """
        if spec:
            raise MisconfiguredError("spec.bootImage: local machines have no image; remove it")
        return ""

    async def launch(self, request: LaunchRequest) -> Instance:
        """See ``Provider.launch``."""
        return await self._run(lambda: self._launch(request))

    async def instances(self) -> Sequence[Instance]:
        """See ``Provider.instances``."""
        return await self._run(self._instances)

    async def terminate(self, instance_id: str) -> None:
        """See ``Provider.terminate``; returns when the process has ended."""
        await self._run(lambda: self._terminate(instance_id))

    async def stop(self, instance_id: str) -> None:
        """See ``Provider.stop``; returns when the process has ended."""
        await self._run(lambda: self._stop(instance_id))

    async def start(self, instance_id: str) -> None:
        """See ``Provider.start``."""
        await self._run(lambda: self._start(instance_id))

    async def wipe(self, instance_id: str) -> None:
        """End the process, remove its data and begin again."""
        await self._run(lambda: self._wipe(instance_id))

    async def resize_volume(self, instance_id: str, gib: int) -> bool:
        """There is no volume."""
        return False

    async def interruptions(self) -> AsyncGenerator[Interruption, bool | None]:
        """There are none."""
        none: tuple[Interruption, ...] = ()
        for notice in none:
            yield notice

    async def close(self) -> None:
        """End the thread; the processes stay."""
        self._lane.close()

    # --- in the thread ---------------------------------------------------------------------------

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await self._lane.run(work)
        except OSError as error:
            raise ProviderError(f"local machines: {error}; check {self._root}") from error

    def _launch(self, request: LaunchRequest) -> Instance:
        if not _NAME.fullmatch(request.token):
            raise MisconfiguredError(f"machine {request.token!r}: no name of a machine; rename it")
        home = MachineHome(self._root / request.token)
        if not home.path.exists():
            wrong = [o for o in request.offerings if o.instance_type not in self._types]
            if wrong:
                name = wrong[0].instance_type
                raise MisconfiguredError(f"instance type {name}: there is none; change the pool")
            chosen = [o for o in request.offerings if not o.spot and not o.zone]
            fitting = [o.instance_type for o in chosen if self._has_room(o.instance_type)]
            if not fitting:
                raise CapacityError("this computer has no room; wait or allow smaller types")
            home.path.mkdir(parents=True, mode=0o700)
            kind = self._types[fitting[0]]
            home.write(
                {
                    "type": kind.name,
                    "capacity": dict(kind.capacity),
                    "price": str(kind.offerings[0].price),
                    "labels": dict(request.labels),
                    "userData": request.user_data,
                    "joinToken": request.join_token,
                    "wanted": RUNNING,
                    "run": 1,
                }
            )
        record = home.record()
        if record["wanted"] == RUNNING and not home.process(record).has_begun:
            self._programs.begin(home, record)
        found = self._looked_after(home)
        if found is None:
            raise InstanceGoneError(f"instance of {request.token} has ended; order another")
        return found

    def _instances(self) -> list[Instance]:
        seen = [self._looked_after(home) for home in homes(self._root)]
        return [one for one in seen if one is not None]

    def _looked_after(self, home: MachineHome) -> Instance | None:
        """A machine, after what its process did without it was followed up."""
        record = home.record()
        process, wanted = home.process(record), record["wanted"]
        if wanted == RUNNING and process.has_crashed:
            self._programs.remove(home)  # what it has started ends, too
        elif wanted == HALTED or (
            wanted == RUNNING and process.has_begun and not process.is_alive()
        ):  # it has ended with the control plane, or with the computer
            if process.is_alive():  # the end was interrupted
                self._programs.end(home, record)
            self._programs.begin_again(home, record)
        return _seen(home)

    def _terminate(self, instance_id: str) -> None:
        home = MachineHome(self._root / instance_id)
        if _NAME.fullmatch(instance_id) and home.path.exists():
            self._programs.remove(home)

    def _stop(self, instance_id: str) -> None:
        home, record = self._there(instance_id)
        record["wanted"] = STOPPED
        home.write(record)
        self._programs.end(home, record)

    def _start(self, instance_id: str) -> None:
        home, record = self._there(instance_id)
        if record["wanted"] == RUNNING:
            return
        if not self._has_room(record["type"]):
            raise CapacityError("this computer has no room; wait or end other machines")
        self._programs.end(home, record)
        self._programs.begin_again(home, record)

    def _wipe(self, instance_id: str) -> None:
        home, record = self._there(instance_id)
        if record["wanted"] != RUNNING:
            self._programs.wipe(home)
            return
        self._programs.end(home, record)
        self._programs.wipe(home)
        self._programs.begin_again(home, record)

    # --- what is on the disk ---------------------------------------------------------------------

    def _there(self, instance_id: str) -> tuple[MachineHome, dict[str, Any]]:
        home = MachineHome(self._root / instance_id)
        if not _NAME.fullmatch(instance_id) or not home.path.exists() or _seen(home) is None:
            raise InstanceGoneError(f"instance {instance_id} is gone; order another")
        return home, home.record()

    def _has_room(self, wanted: str) -> bool:
        rooms = [self._types[wanted].capacity] if wanted in self._types else []
        for home in homes(self._root):
            found = _seen(home)
            if found is not None and found.state in _USING:
                rooms.append(home.record().get("capacity", {}))
        return all(
            sum(parse(room[name]) for room in rooms if name in room) <= limit
            for name, limit in self._capacity.items()
        )


_USING = {InstanceState.PENDING, InstanceState.RUNNING, InstanceState.ENDING}


def _seen(home: MachineHome) -> Instance | None:
    record = home.record()
    process, wanted = home.process(record), record["wanted"]
    alive = process.is_alive()
    if wanted == STOPPED:
        state = InstanceState.STOPPING if alive else InstanceState.STOPPED
    elif alive:
        state = InstanceState.ENDING if wanted == ENDED else InstanceState.RUNNING
    elif wanted == HALTED or (wanted == RUNNING and not process.has_begun):
        state = InstanceState.PENDING
    else:
        return None
    return Instance(
        id=home.name,
        machine=home.name,
        state=state,
        instance_type=record["type"],
        price_per_hour=record["price"],
    )
