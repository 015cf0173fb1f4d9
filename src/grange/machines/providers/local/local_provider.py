"""The provider over processes of this computer; what it knows is in files, so a restart adopts it."""

import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from grange.api.quantity import parse
from grange.base.offload import Threads
from grange.machines.catalogue import InstanceType
from grange.machines.providers.local.machine_process import (
    EndOutcome,
    MachineProcess,
    write_whole,
)
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
_GRACE_S = 10.0
_CLEANUP_S = 30.0


def computer_capacity() -> dict[str, str]:
    """Processors and memory of this computer."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": str(memory)}


@dataclass(frozen=True, slots=True)
class MachineCommands:
    """What machines run.

    ``{machine}``, ``{data}``, ``{user_data}`` (a file), ``{labels}`` and ``{capacity}`` are replaced.

    Attributes:
        run: the machine; it finds its join token in ``$GRANGE_JOIN_TOKEN``.
        cleanup: ends the programs that a machine left running, where its process did not end when it
            was asked to. Empty: nothing is left.
        kept: names in the data directory that stay when a machine is wiped, e.g. its identity.
    """

    run: Sequence[str]
    cleanup: Sequence[str] = ()
    kept: Collection[str] = ()


class LocalProvider:
    """Machines as processes.

    Args:
        directory: of all machines; each has its own below the name of the cluster.
        cluster: whose machines.
        commands: what machines run.
        types: what can be launched, by name.
        capacity: what all running machines may have together.
        environment: variables of the command; it has no others but ``PATH``.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        commands: MachineCommands,
        types: Mapping[str, InstanceType],
        capacity: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        if not _NAME.fullmatch(cluster):
            raise MisconfiguredError(f"cluster {cluster!r}: no name for a directory; use another")
        self._root = directory / cluster
        self._commands, self._types = commands, types
        self._capacity = {name: parse(value) for name, value in capacity.items()}
        self._environment = environment
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

    async def interruptions(self) -> AsyncIterator[Interruption]:
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
        home = self._root / request.token
        if not home.exists():
            wrong = [o for o in request.offerings if o.instance_type not in self._types]
            if wrong:
                name = wrong[0].instance_type
                raise MisconfiguredError(f"instance type {name}: there is none; change the pool")
            chosen = [o for o in request.offerings if not o.spot and not o.zone]
            fitting = [o.instance_type for o in chosen if self._has_room(o.instance_type)]
            if not fitting:
                raise CapacityError("this computer has no room; wait or allow smaller types")
            home.mkdir(parents=True, mode=0o700)
            record = {
                "type": fitting[0],
                "price": str(self._types[fitting[0]].offerings[0].price),
                "labels": dict(request.labels),
                "userData": request.user_data,
                "joinToken": request.join_token,
                "wanted": "running",
                "run": 1,
            }
            write_whole(home / "machine.json", record)
        record = self._record(home)
        if record["wanted"] == "running" and not self._process(home, record).has_begun:
            self._spawn(home, record)
        found = self._seen(home)
        if found is None:
            raise InstanceGoneError(f"instance of {request.token} has ended; order another")
        return found

    def _instances(self) -> list[Instance]:
        if not self._root.exists():
            return []
        found = []
        for home in self._homes():
            record = self._record(home)
            process = self._process(home, record)
            if record["wanted"] == "running" and process.has_begun and not process.is_alive():
                self._terminate(home.name)  # it has crashed: what it has started ends, too
            if (one := self._seen(home)) is not None:
                found.append(one)
        return found

    def _terminate(self, instance_id: str) -> None:
        home = self._root / instance_id
        if not _NAME.fullmatch(instance_id) or not home.exists():
            return
        record = self._record(home) | {"wanted": "ended", "userData": "", "joinToken": ""}
        write_whole(home / "machine.json", record)
        self._end(home, record)
        _remove(home / "data")
        (home / "user-data").unlink(missing_ok=True)

    def _stop(self, instance_id: str) -> None:
        home, record = self._there(instance_id)
        record["wanted"] = "stopped"
        write_whole(home / "machine.json", record)
        self._end(home, record)

    def _start(self, instance_id: str) -> None:
        home, record = self._there(instance_id)
        if record["wanted"] == "running":
            return
        if not self._has_room(record["type"]):
            raise CapacityError("this computer has no room; wait or end other machines")
        self._end(home, record)
        self._begin_again(home, record)

    def _wipe(self, instance_id: str) -> None:
        home, record = self._there(instance_id)
        if record["wanted"] != "running":
            _remove(home / "data", self._commands.kept)
            return
        self._end(home, record)
        _remove(home / "data", self._commands.kept)
        self._begin_again(home, record)

    def _begin_again(self, home: Path, record: dict[str, Any]) -> None:
        record |= {"wanted": "running", "run": record["run"] + 1}
        write_whole(home / "machine.json", record)
        self._spawn(home, record)

    def _spawn(self, home: Path, record: dict[str, Any]) -> None:
        data, user_data = home / "data", home / "user-data"
        data.mkdir(exist_ok=True, mode=0o700)
        with open(os.open(user_data, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(record["userData"])
        command, variables = self._filled(self._commands.run, home, record)
        self._process(home, record).spawn(command, variables, home / "output.log")

    def _filled(
        self, command: Sequence[str], home: Path, record: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, str]]:
        """A command of a machine, and its variables."""
        kind = self._types.get(record["type"])
        capacity = kind.capacity if kind is not None else {}
        replaced = {
            "{machine}": home.name,
            "{data}": str(home / "data"),
            "{user_data}": str(home / "user-data"),
            "{labels}": _pairs(record["labels"]),
            "{capacity}": _pairs(capacity),
        }
        # The environment of the control plane may hold secrets: none of it is inherited.
        variables = {**self._environment, "GRANGE_MACHINE": home.name}
        if record.get("joinToken"):
            variables["GRANGE_JOIN_TOKEN"] = record["joinToken"]
        return [_replaced(word, replaced) for word in command], variables

    def _end(self, home: Path, record: Mapping[str, Any]) -> None:
        outcome = self._process(home, record).end(_GRACE_S)
        if outcome is EndOutcome.ALIVE:
            raise ProviderError(f"machine {home.name}: its process does not end; try again")
        if outcome is EndOutcome.UNCLEAN and self._commands.cleanup and (home / "data").exists():
            self._clean_up(home, record)

    def _clean_up(self, home: Path, record: Mapping[str, Any]) -> None:
        command, variables = self._filled(self._commands.cleanup, home, record)
        run = MachineProcess(home / f"cleanup-{record['run']}")
        shutil.rmtree(home / f"cleanup-{record['run']}", ignore_errors=True)
        (home / f"cleanup-{record['run']}.ended").unlink(missing_ok=True)
        run.spawn(command, variables, home / "output.log")
        if not run.wait(_CLEANUP_S):
            run.end(0.0)
            raise ProviderError(f"machine {home.name}: its programs do not end; try again")

    # --- what is on the disk ---------------------------------------------------------------------

    def _homes(self) -> list[Path]:
        return [home for home in sorted(self._root.iterdir()) if (home / "machine.json").exists()]

    def _record(self, home: Path) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads((home / "machine.json").read_text())
        except FileNotFoundError:
            # A launch that was interrupted before it had started anything; its token is used.
            record = {"type": "", "price": "", "labels": {}, "wanted": "ended", "run": 1}
        except ValueError as error:
            raise ProviderError(f"{home}: its record is malformed: {error}; repair it") from error
        return record

    def _process(self, home: Path, record: Mapping[str, Any]) -> MachineProcess:
        return MachineProcess(home / f"run-{record['run']}")

    def _there(self, instance_id: str) -> tuple[Path, dict[str, Any]]:
        home = self._root / instance_id
        if not _NAME.fullmatch(instance_id) or not home.exists() or self._seen(home) is None:
            raise InstanceGoneError(f"instance {instance_id} is gone; order another")
        return home, self._record(home)

    def _seen(self, home: Path) -> Instance | None:
        record = self._record(home)
        process, wanted = self._process(home, record), record["wanted"]
        alive = process.is_alive()
        if wanted == "stopped":
            state = InstanceState.STOPPING if alive else InstanceState.STOPPED
        elif alive:
            state = InstanceState.RUNNING if wanted == "running" else InstanceState.ENDING
        elif wanted == "running" and not process.has_begun:
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

    def _has_room(self, wanted: str) -> bool:
        types = [wanted]
        if self._root.exists():
            types += [one.instance_type for one in self._instances() if one.state in _USING]
        for name, room in self._capacity.items():
            kinds = [self._types[t].capacity for t in types if t in self._types]
            if sum(parse(kind[name]) for kind in kinds if name in kind) > room:
                return False
        return True


_USING = {InstanceState.PENDING, InstanceState.RUNNING, InstanceState.ENDING}


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
