"""What only hosts can get wrong: keys, claims of others, lost hosts, scripts that fail or hang."""

import asyncio
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.support.ssh_hosts import SshHosts, ssh_hosts

from grange.api.kinds.machine import MachineOffering
from grange.base.clock import Clock
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceGoneError,
    InstanceState,
    LaunchRequest,
    MisconfiguredError,
    Provider,
    ProviderError,
)
from grange.machines.providers.ssh import host_scripts
from grange.machines.providers.ssh.ssh_config import read_config

pytestmark = pytest.mark.e2e
S = InstanceState
LIMIT_S = 240.0


@asynccontextmanager
async def opened(
    root: Path, clock: Clock, **config: str
) -> AsyncIterator[tuple[SshHosts, Provider]]:
    async with ssh_hosts(root, clock, "h-1", "h-2") as hosts:
        provider = hosts.provider(**config)
        try:
            yield hosts, provider
        finally:
            await provider.close()


def order(name: str, host: str = "h-1", user_data: str = "") -> LaunchRequest:
    return LaunchRequest(name, (MachineOffering("rack", host),), user_data=user_data)


async def until(
    clock: Clock, provider: Provider, condition: Callable[[Sequence[Instance]], bool]
) -> Sequence[Instance]:
    async with clock.timeout(LIMIT_S):
        while not condition(found := await provider.instances()):
            await clock.sleep(0.05)
    return found


def are(*states: InstanceState) -> Callable[[Sequence[Instance]], bool]:
    return lambda found: [one.state for one in found] == [*states]


async def test_user_data_run_once_and_are_private(tmp_path: Path, clock: Clock) -> None:
    ran = tmp_path / "ran"
    script = f"#!/bin/sh\necho once >>{ran}\n"
    async with opened(tmp_path, clock) as (hosts, provider):
        for _ in range(3):
            await provider.launch(order("p-1", user_data=script))
        await until(clock, provider, are(S.RUNNING))
        await provider.launch(order("p-1", user_data=script))
        assert ran.read_text() == "once\n"
        assert (hosts.directory("h-1") / "start").stat().st_mode & 0o077 == 0


async def test_a_cloud_config_is_run_without_cloud_init(tmp_path: Path, clock: Clock) -> None:
    made = tmp_path / "made"
    text = f"#cloud-config\nwrite_files: [{{path: {made}, content: it}}]\n"
    async with opened(tmp_path, clock) as (_, provider):
        await provider.launch(order("p-1", user_data=text))
        await until(clock, provider, are(S.RUNNING))
        assert made.read_text() == "it"
        with pytest.raises(MisconfiguredError, match="packages needs cloud-init"):
            await provider.launch(order("p-2", "h-2", "packages: [a]"))


async def test_a_host_has_one_machine(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (hosts, provider):
        other = hosts.provider("theirs")
        await other.launch(order("q-1", "h-1"))
        with pytest.raises(CapacityError) as error:
            await provider.launch(order("p-1", "h-1"))
        assert error.value.offering == MachineOffering("rack", "h-1")
        await provider.terminate("h-1/q-1")  # not ours
        assert len(await other.instances()) == 1
        await other.close()


async def test_of_two_claims_at_once_one_wins(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (_, provider):
        found = await asyncio.gather(
            *(provider.launch(order(f"p-{n}")) for n in range(6)), return_exceptions=True
        )
        assert sum(isinstance(one, Instance) for one in found) == 1
        assert sum(isinstance(one, CapacityError) for one in found) == 5
        assert len(await provider.instances()) == 1


async def test_a_host_is_clean_before_it_is_free(tmp_path: Path, clock: Clock) -> None:
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done"
    async with opened(tmp_path, clock, release=waits) as (hosts, provider):
        made = await provider.launch(order("p-1"))
        await until(clock, provider, are(S.RUNNING))
        await provider.terminate(made.id)
        assert are(S.ENDING)(await provider.instances())
        with pytest.raises(CapacityError):
            await provider.launch(order("p-2"))
        go.touch()
        await until(clock, provider, are())
        assert not (hosts.directory("h-1") / "start").exists()
        await provider.launch(order("p-3"))


async def test_a_host_that_cannot_be_cleaned_is_kept(tmp_path: Path, clock: Clock) -> None:
    clean = tmp_path / "clean"
    async with opened(tmp_path, clock, release=f"test -e {clean}") as (hosts, provider):
        made = await provider.launch(order("p-1"))
        await until(clock, provider, are(S.RUNNING))
        await provider.terminate(made.id)
        lock = str(hosts.directory("h-1") / "lock")
        await asyncio.to_thread(
            subprocess.run, ["flock", lock, "true"], check=True, timeout=LIMIT_S
        )
        assert are(S.ENDING)(await provider.instances())
        clean.touch()
        await provider.terminate(made.id)
        await until(clock, provider, are())


async def test_user_data_that_hang_are_ended(tmp_path: Path, clock: Clock) -> None:
    began = tmp_path / "began"
    script = f"#!/bin/sh\nsleep 300 & echo $! >{began}.new; mv {began}.new {began}\nwait\n"
    async with opened(tmp_path, clock) as (_, provider):
        made = await provider.launch(order("p-1", user_data=script))
        async with clock.timeout(LIMIT_S):
            while not began.exists():
                await clock.sleep(0.05)
        pid = int(began.read_text())
        assert are(S.PENDING)(await provider.instances())
        await provider.terminate(made.id)
        await until(clock, provider, are())
        async with clock.timeout(LIMIT_S):
            while _state(pid) not in "ZX":
                await clock.sleep(0.05)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


async def test_failed_user_data_make_no_running_machine(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (hosts, provider):
        await provider.launch(order("p-1", user_data="#!/bin/sh\nexit 3\n"))
        started = hosts.directory("h-1") / "started"
        async with clock.timeout(LIMIT_S):
            while not started.exists():
                await clock.sleep(0.05)
        assert started.read_text() == "3\n"
        assert are(S.PENDING)(await provider.instances())


async def test_a_lost_host_keeps_its_machine(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (hosts, provider):
        await provider.launch(order("p-1"))
        await until(clock, provider, are(S.RUNNING))
        await hosts.remove("h-1")
        assert are(S.RUNNING)(await provider.instances())
        with pytest.raises(CapacityError, match="h-1: cannot be reached"):
            await provider.launch(order("p-2", "h-1"))
        restarted = hosts.provider()
        with pytest.raises(ProviderError, match="h-1: cannot be reached"):
            await restarted.instances()
        await hosts.add("h-1")
        for one in (provider, restarted):
            assert [found.machine for found in await one.instances()] == ["p-1"]
        await restarted.close()


async def test_a_host_with_another_key_is_refused(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (hosts, provider):
        await hosts.remove("h-1")
        hosts.host_keys["h-1"] = asyncssh.generate_private_key("ssh-ed25519")
        await hosts.add("h-1")
        before = hosts.commands
        with pytest.raises(MisconfiguredError, match="knownHosts"):
            await provider.launch(order("p-1"))
        assert hosts.commands == before


async def test_a_key_that_is_refused_is_a_mistake(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (hosts, provider):
        hosts.key = asyncssh.generate_private_key("ssh-ed25519")
        with pytest.raises(MisconfiguredError, match="user root is refused"):
            await provider.launch(order("p-1"))
        unknown = hosts.provider(keySecret="none")
        with pytest.raises(MisconfiguredError, match="secret none: has no ssh-privatekey"):
            await unknown.launch(order("p-1"))
        await unknown.close()


async def test_the_agent_is_stopped_before_its_files_go(tmp_path: Path) -> None:
    """The default commands, below another root, with a stand-in for the agent."""
    etc, data = tmp_path / "etc/grange", tmp_path / "var/lib/grange"
    for directory in (etc, data / "pki", data / "pods"):
        directory.mkdir(parents=True)
    (etc / "install-agent").write_text(f"#!/bin/sh\ntouch {tmp_path}/again\n")
    (etc / "install-agent").chmod(0o700)
    holder = f"exec 9>{data}/agent.lock; flock 9; echo up; exec sleep 300"
    scripts = [
        re.sub(r"(?<=[\s=(])/(etc|run|var)/", rf"{tmp_path}/\1/", text)
        for text in (host_scripts.WIPE, host_scripts.RELEASE)
    ]
    for script, left in zip(scripts, (["pki"], []), strict=True):
        agent = await asyncio.create_subprocess_exec(
            "sh", "-c", holder, stdout=asyncio.subprocess.PIPE
        )
        assert agent.stdout is not None
        assert await agent.stdout.readline() == b"up\n"
        (etc / "agent.pid").write_text(f"{agent.pid}\n")
        await asyncio.to_thread(subprocess.run, ["sh", "-c", script], check=True, timeout=LIMIT_S)
        assert await agent.wait() == -15
        assert sorted(one.name for one in data.glob("*")) == left
    assert (tmp_path / "again").exists()
    assert not etc.exists()


BASE: dict[str, Any] = {
    "hosts": [{"name": "a", "address": "10.0.0.1"}],
    "types": {"t": {"cpu": "1", "memory": "1Gi"}},
    "keySecret": "s",
    "knownHosts": "k",
}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"hosts": []}, "hosts"),
        ({"hosts": [{"name": "a"}]}, "hosts[0].address"),
        ({"hosts": [{"address": "a", "port": 0}]}, "hosts[0].port"),
        ({"hosts": [{"address": "a b"}]}, "hosts[0].name"),
        ({"hosts": [{"address": "a", "type": "u"}]}, "hosts[0].type"),
        ({"hosts": [{"address": "a", "directory": "here"}]}, "hosts[0].directory"),
        ({"hosts": [{"address": "a", "sudo": "yes"}]}, "hosts[0].sudo"),
        ({"hosts": [{"address": "a"}] * 2}, "hosts[1].name"),
        ({"types": {"t": {"cpu": "1"}}}, "types.t.memory"),
        ({"types": {"t": {"cpu": "x", "memory": "1Gi"}}}, "types.t.cpu"),
        ({"types": {"t": {"cpu": "1", "memory": "1Gi", "price": "-1"}}}, "types.t.price"),
        ({"types": []}, "types"),
        ({"knownHosts": " "}, "knownHosts"),
        ({"keySecret": 1}, "keySecret"),
        ({"key": "k"}, "key"),
    ],
)
def test_a_wrong_config_of_hosts_names_its_field(change: dict[str, Any], path: str) -> None:
    read_config(BASE)
    with pytest.raises(MisconfiguredError) as error:
        read_config({**BASE, **change})
    assert str(error.value).startswith(f"spec.providerConfig.{path}: ")


def test_the_scripts_have_no_errors_of_syntax() -> None:
    for name in ("LAUNCH", "LIST", "TERMINATE", "WIPE_HOST", "RELEASE", "WIPE"):
        script = getattr(host_scripts, name)
        done = subprocess.run(
            ["sh", "-n", "-c", script], capture_output=True, timeout=LIMIT_S, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), shlex.quote(name)


async def test_an_id_of_nothing_ends_nothing(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as (_, provider):
        for name in ("never-was", "h-1/../..", "h-9/p-1"):
            await provider.terminate(name)
        with pytest.raises(InstanceGoneError):
            await provider.wipe("h-1/p-1")


@pytest.mark.parametrize("running", [None, "", "boot\n", "boot\n123456\n"])
def test_end_right_after_the_launch_succeeds(tmp_path: Path, running: str | None) -> None:
    """The file with the process group is not there yet, or no more, or it is of another boot."""
    (tmp_path / "claim").symlink_to("ours/p-1")
    if running is not None:
        (tmp_path / "running").write_text(running)
    script = host_scripts.TERMINATE + "wait\n"  # for what it leaves in the background
    words = ["sh", "-c", script, "sh", str(tmp_path), "ours", "p-1", "true"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "claim").is_symlink()
    assert (tmp_path / "used" / "ours" / "p-1").is_dir()
