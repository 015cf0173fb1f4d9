"""Pods that wait while no pool can be used are informed why: each pool's reason in one message."""

from collections.abc import Mapping
from typing import Any

from tests.support.machine_world import MachineWorld

from grange.api.kinds import NODEPOOL
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools
from grange.machines.providers.provider import MisconfiguredError, Provider
from grange.machines.providers.simulated.cloud_faults import CloudFault
from grange.sim.api_fixture import opened


class HalfWorld(MachineWorld):
    """A world in which the provider of some pools cannot be made."""

    def provider(self, name: str, config: Mapping[str, Any], tools: ProviderTools) -> Provider:
        if "key" not in config:
            return super().provider(name, config, tools)
        raise MisconfiguredError(f"spec.providerConfig.key: {config['key']} is refused; correct it")


def refused(key: str) -> dict[str, Any]:
    return {"mode": "Packed", "providerConfig": {"key": key}}


async def test_pod_has_the_reason_of_each_pool(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(HalfWorld(clock, rng, log)) as world:
        world.begin()
        await world.add_pool("s", **refused("k1"))
        await world.add_pool("t", **refused("k2"))
        await world.add_unschedulable("a", cpu="1")
        await world.settle(60.0)
        assert await world.events("NoMachine") == [
            "no pool can be used: "
            "pool s: Misconfigured: spec.providerConfig.key: k1 is refused; correct it; "
            "pool t: Misconfigured: spec.providerConfig.key: k2 is refused; correct it"
        ]
        usable = {"spec": {"providerConfig": {"key": None}}}
        await world.client.patch(NODEPOOL, "t", patch=usable)
        world.nursery.start(world.agents())
        await world.count(MachinePhase.AVAILABLE, 1)


async def test_pod_that_selects_an_unusable_pool_is_informed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Whether the pool is shared or not, and though another one can be used."""
    async with opened(HalfWorld(clock, rng, log)) as world:
        world.begin()
        await world.add_pool("fine", mode="Packed")
        await world.add_pool("s", **refused("k1"))
        await world.add_pool("p", providerConfig={"key": "k2"})
        await world.add_unschedulable("a", cpu="1", nodeSelector={"grange.dev/node-pool": "s"})
        await world.add_pod("b", "p")
        await world.settle(60.0)
        assert sorted(await world.events("NoMachine")) == [
            "pool p cannot be used: Misconfigured: spec.providerConfig.key: k2 is refused; correct it",
            "pool s cannot be used: Misconfigured: spec.providerConfig.key: k1 is refused; correct it",
        ]
        assert world.cloud.launches == 0


async def test_pods_wait_silently_for_a_first_answer(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A controller that starts reports nothing about a provider that it has just asked."""
    async with opened(HalfWorld(clock, rng, log)) as world:
        world.faults.add("catalogue", CloudFault.HANG)
        world.begin()
        await world.add_pool("s", mode="Packed")
        await world.add_unschedulable("a", cpu="1")
        await world.settle(30.0)
        assert await world.events("NoMachine") == []
        await world.settle(60.0)  # the call had no answer in time
        (event,) = await world.events("NoMachine")
        assert event.startswith(
            "no pool can be used: pool s: CatalogueUnknown: catalogue: no answer"
        )
