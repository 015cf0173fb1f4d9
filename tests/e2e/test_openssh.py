"""The provider ``ssh`` with OpenSSH's server: a host is claimed, runs its user data, and is released."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import asyncssh
import pytest
from tests.support.openssh_hosts import openssh_hosts

from grange.api.kinds.machine import MachineOffering
from grange.base.clock import Clock, LoopClock
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceState,
    LaunchRequest,
    MisconfiguredError,
    Provider,
    ProviderError,
)

pytestmark = pytest.mark.e2e
S = InstanceState
LIMIT_S = 120.0


@pytest.fixture
def clock() -> Clock:
    return LoopClock()


def order(name: str, host: str, user_data: str = "") -> LaunchRequest:
    return LaunchRequest(name, (MachineOffering("rack", host),), user_data=user_data)


async def until(
    clock: Clock, provider: Provider, condition: Callable[[Sequence[Instance]], bool]
) -> None:
    async with clock.timeout(LIMIT_S):
        while not condition(await provider.instances()):
            await clock.sleep(0.05)


async def test_host_is_claimed_used_and_released(tmp_path: Path, clock: Clock) -> None:
    ran = tmp_path / "ran"
    script = f"#!/bin/sh\nid -un >>{ran}\n"
    async with openssh_hosts(tmp_path, clock, "h-1", "h-2") as hosts:
        provider, other = hosts.provider(), hosts.provider("theirs")
        try:
            made = await provider.launch(order("p-1", "h-1", script))
            assert await provider.launch(order("p-1", "h-1", script)) == made
            await until(clock, provider, lambda found: [one.state for one in found] == [S.RUNNING])
            assert ran.read_text().count("\n") == 1
            with pytest.raises(CapacityError):
                await other.launch(order("q-1", "h-1"))
            await other.launch(order("q-2", "h-2"))
            assert [one.id for one in await provider.instances()] == [made.id]
            await provider.terminate(made.id)
            await until(clock, provider, lambda found: not found)
            await until(clock, other, lambda found: len(found) == 1)
            assert not (hosts.directory("h-1") / "start").exists()
        finally:
            await provider.close()
            await other.close()


async def test_host_that_is_away_keeps_its_machine(tmp_path: Path, clock: Clock) -> None:
    async with openssh_hosts(tmp_path, clock, "h-1") as hosts:
        provider = hosts.provider()
        try:
            made = await provider.launch(order("p-1", "h-1"))
            await until(clock, provider, lambda found: [one.state for one in found] == [S.RUNNING])
            await hosts.remove("h-1")
            for _ in range(2):  # a connection that broke, and one that is refused
                found = await _listed_or_refused(provider)
                assert found is None or [one.id for one in found] == [made.id]
            await hosts.add("h-1")
            await until(clock, provider, lambda found: [one.state for one in found] == [S.RUNNING])
        finally:
            await provider.close()


async def _listed_or_refused(provider: Provider) -> Sequence[Instance] | None:
    try:
        return await provider.instances()
    except ProviderError:
        return None


@pytest.mark.parametrize("which", ["key", "host"])
async def test_wrong_keys_are_mistakes_of_the_pool(
    tmp_path: Path, clock: Clock, which: str
) -> None:
    """A key that may not log in, and a host that is not the one that was described."""
    async with openssh_hosts(tmp_path, clock, "h-1") as hosts:
        if which == "key":
            await asyncio.to_thread(hosts.authorized_keys("h-1").write_text, "")
        else:
            hosts.host_keys["h-1"] = asyncssh.generate_private_key("ssh-ed25519")
        provider = hosts.provider()
        try:
            with pytest.raises(MisconfiguredError, match="h-1"):
                await provider.launch(order("p-1", "h-1"))
        finally:
            await provider.close()
