"""Pods that wait while no pool can be used are informed why: each pool's reason in one message."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.machine_world import MachineWorld

from grange.api import conditions
from grange.api.http import Request
from grange.api.kinds import BUILT_IN, NODEPOOL
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import ApiError, Cause, Invalid
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


def _no_rules(document: Document, old: Document | None) -> list[Cause]:
    return []


class ForeignWorld(MachineWorld):
    """A world whose server checks pools by their schema alone, as those of others do."""

    kinds = tuple(
        replace(kind, validate=_no_rules) if kind is NODEPOOL else kind for kind in BUILT_IN
    )


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


BROKEN: Mapping[str, tuple[dict[str, Any], str]] = {
    "limits": (
        {"limits": {"machines": 1}, "standby": [{"instanceType": "small", "count": 3}]},
        "spec.limits.machines: Invalid value: 1: must not be less than the 3 machines of standby",
    ),
    "boot": (
        {"timeouts": {"bootSecondsByType": {"small": 0}}},
        "spec.timeouts.bootSecondsByType[small]: Invalid value: 0: must be greater than or equal to 1",
    ),
    "budgets": (
        {"disruption": {"budgets": [{"nodes": "0", "schedule": "@hourly"}]}},
        "spec.disruption.budgets[0].durationSeconds: Required value: how long each window is",
    ),
}


@pytest.mark.parametrize("mode", ["Dedicated", "Packed"])
@pytest.mark.parametrize("rule", BROKEN)
async def test_pool_that_breaks_a_rule_is_not_served(
    rule: str, mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    spec, fault = BROKEN[rule]
    async with opened(ForeignWorld(clock, rng, log)) as world:
        world.begin()
        await world.add_pool(mode=mode, **spec)
        if mode == "Packed":
            await world.add_unschedulable("a", "1", nodeSelector={"grange.dev/node-pool": "p"})
        else:
            await world.add_pod("a", "p")
        await world.settle(60.0)
        refusal = f"pool p cannot be used: Misconfigured: {fault}"
        assert await world.events("NoMachine") == [refusal]
        ready = conditions.find((await world.pool("p")).status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason, ready.message) == ("False", "Misconfigured", fault)
        assert world.cloud.launches == 0
        found = await world.controller.report("plan", "p")
        assert found is not None
        assert found["refusal"] == fault
        assert await world.machines() == []


async def test_pool_that_cannot_be_written_holds_up_no_other(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """One that was stored before a rule was there, which the server refuses with every patch."""

    def refuses(request: Request) -> ApiError | None:
        is_write = request.method == "PATCH" and "/nodepools/bad" in request.path
        return Invalid("spec: breaks a rule") if is_write else None

    async with opened(MachineWorld(clock, rng, log)) as world:
        world.gate = refuses
        world.begin()
        await world.add_pool("bad", mode="Packed")
        await world.add_pool("fine", mode="Packed")
        await world.add_unschedulable("a", cpu="1")
        world.nursery.start(world.agents())
        await world.count(MachinePhase.AVAILABLE, 1)
        pools = {machine.spec.pool for machine in await world.machines()}
        assert pools == {"fine"}
