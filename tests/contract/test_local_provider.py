"""What only machines that are processes can get wrong: restarts, foreign processes, room."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.local_machines import COMMAND, local_machines, open_local

from grange.api.kinds.machine import MachineOffering
from grange.machines.providers.local.machine_halt import HaltResult, halt, running
from grange.machines.providers.local.machine_home import HALTED, MachineHome
from grange.machines.providers.local.machine_programs import MachineCommands, MachinePrograms
from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    InstanceState,
    LaunchRequest,
    MisconfiguredError,
)

USER_DATA = "join me"


def order(token: str, kind: str = "small") -> LaunchRequest:
    return LaunchRequest(token, (MachineOffering(kind),), user_data=USER_DATA)


def pid_of(directory: Path, run: str) -> int:
    return int((directory / "ours" / run / "process").read_text().split()[1])


async def test_a_restarted_control_plane_adopts_machines(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as after:
        before = open_local(tmp_path, "ours")
        made = await before.launch(order("p-1"))
        await before.close()
        assert await after.instances() == [made]
        assert (await after.launch(order("p-1"))).state is InstanceState.RUNNING
        await after.terminate(made.id)
        assert await after.instances() == []


@pytest.mark.parametrize("what", ["boot", "start time"])
async def test_a_foreign_process_is_not_signalled(tmp_path: Path, what: str) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        made = await provider.launch(order("p-1"))
        record = tmp_path / "ours" / "p-1" / "run-1" / "process"
        whole = record.read_text()
        boot, stat = whole.splitlines()
        if what == "boot":
            record.write_text(f"another\n{stat}\n")
        else:
            head, _, rest = stat.rpartition(")")
            fields = rest.split()
            fields[19] = "1"
            record.write_text(f"{boot}\n{head}) {' '.join(fields)}\n")
        await provider.terminate(made.id)
        assert await provider.instances() == []
        os.kill(pid_of(tmp_path, "p-1/run-1"), 0)
        record.write_text(whole)


async def test_a_process_that_ended_is_gone(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        await provider.launch(order("p-1"))
        pid = pid_of(tmp_path, "p-1/run-1")
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert await provider.instances() == []
        with pytest.raises(InstanceGoneError):
            await provider.launch(order("p-1"))


def programs() -> MachinePrograms:
    return MachinePrograms(MachineCommands(COMMAND))


async def test_halted_machines_run_again(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as after:
        before = open_local(tmp_path, "ours")
        for token in ("p-1", "p-2"):
            await before.launch(order(token))
        await before.terminate("p-2")
        await before.close()
        (tmp_path / "ours" / "p-1" / "data" / "kept").touch()
        assert running(tmp_path) == ("p-1",)
        assert await halt(tmp_path, programs()) == HaltResult(("p-1",))
        assert running(tmp_path) == ()
        assert await halt(tmp_path, programs()) == HaltResult()
        (found,) = await after.instances()
        assert (found.id, found.state) == ("p-1", InstanceState.RUNNING)
        assert (tmp_path / "ours" / "p-1" / "data" / "kept").exists()
        assert pid_of(tmp_path, "p-1/run-1") != pid_of(tmp_path, "p-1/run-2")


async def test_a_stopped_machine_stays_stopped_over_a_halt(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        await provider.launch(order("p-1"))
        await provider.stop("p-1")
        assert await halt(tmp_path, programs()) == HaltResult()
        (found,) = await provider.instances()
        assert found.state is InstanceState.STOPPED


async def test_a_crashed_machine_ends_with_a_halt(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        await provider.launch(order("p-1"))
        pid = pid_of(tmp_path, "p-1/run-1")
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert await halt(tmp_path, programs()) == HaltResult(("p-1",))
        assert await provider.instances() == []


async def test_machines_run_again_after_a_reboot(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        await provider.launch(order("p-1"))
        record = tmp_path / "ours" / "p-1" / "run-1" / "process"
        whole = record.read_text()
        record.write_text(f"another\n{whole.splitlines()[1]}\n")
        (found,) = await provider.instances()
        assert found.state is InstanceState.RUNNING
        assert pid_of(tmp_path, "p-1/run-2")
        record.write_text(whole)
        MachineHome(tmp_path / "ours" / "p-1").process({"run": 1}).end(5.0)


async def test_an_interrupted_halt_is_finished_first(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        await provider.launch(order("p-1"))
        home = MachineHome(tmp_path / "ours" / "p-1")
        home.write(home.record() | {"wanted": HALTED})
        await provider.instances()
        assert not home.process({"run": 1}).is_alive()
        assert home.process({"run": 2}).is_alive()


async def test_the_room_of_the_computer_is_a_limit(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        await provider.launch(order("p-1"))
        with pytest.raises(CapacityError):
            await provider.launch(order("p-2", "medium"))
        made = await provider.launch(order("p-3"))
        await provider.stop("p-1")
        await provider.launch(order("p-4"))
        with pytest.raises(CapacityError):
            await provider.start("p-1")
        await provider.terminate(made.id)
        await provider.start("p-1")


async def test_a_wipe_removes_data_and_runs_again(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        made = await provider.launch(order("p-1"))
        left = tmp_path / "ours" / "p-1" / "data" / "left"
        left.write_text("of a holder")
        await provider.wipe(made.id)
        assert not left.exists()
        assert pid_of(tmp_path, "p-1/run-1") != pid_of(tmp_path, "p-1/run-2")


async def test_user_data_are_secret_and_end_with_it(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        made = await provider.launch(order("p-1"))
        home = tmp_path / "ours" / "p-1"
        assert (home / "user-data").read_text() == USER_DATA
        for name in ("user-data", "machine.json"):
            assert (home / name).stat().st_mode & 0o077 == 0
        await provider.terminate(made.id)
        assert not (home / "user-data").exists()
        assert USER_DATA not in (home / "machine.json").read_text()


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"size": 1}, "size"),
        ({"types": {"s": {"cpu": "1"}}}, "types.s"),
        ({"types": {"s": {"cpu": "x", "memory": "1Gi"}}}, "types.s.cpu"),
        ({"types": {"s": {"cpu": "1", "memory": "1Gi", "price": "-1"}}}, "types.s.price"),
        ({"capacity": []}, "capacity"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path: Path, config: Mapping[str, object], path: str) -> None:
    with pytest.raises(MisconfiguredError, match=rf"^spec\.providerConfig\.{path}: "):
        open_local(tmp_path, "ours", config)


async def test_a_token_cannot_leave_the_directory(tmp_path: Path) -> None:
    async with local_machines(tmp_path, "ours") as provider:
        with pytest.raises(MisconfiguredError):
            await provider.launch(order("../p-1"))
