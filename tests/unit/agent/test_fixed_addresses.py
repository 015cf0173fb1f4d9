"""A pod that asks for an address gets that one or waits, and its node states its range."""

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import document

from grange.api.kinds import EVENT, NODE, POD
from grange.api.pod_addresses import POD_IP
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

WANTED = "127.9.128.5"


def asking(name: str, address: str = WANTED) -> dict[str, object]:
    return document(name=name, meta={"annotations": {POD_IP: address}})


async def is_ready(there: World, name: str) -> bool:
    pod = await there.pod(name)
    return any(item.type == "Ready" and item.status == "True" for item in pod.status.conditions)


async def test_pod_waits_for_its_address(clock: Clock, rng: Stream, log: Logger) -> None:
    """A pod with another address would run where its peers do not look for it."""
    async with world(clock, rng, log) as there:
        await there.create(asking("first"))
        await there.clock.sleep(1)
        assert (await there.pod("first")).status.pod_ip == WANTED
        await there.create(asking("second"))
        await there.clock.sleep(20)
        uid = (await there.pod("first")).metadata.uid
        events = (await there.client.list(EVENT, "default")).items
        assert any(f"{WANTED}: pod {uid} has it" in item.message for item in events)
        assert not await is_ready(there, "second")
        await there.client.delete(POD, "first", "default")
        await there.clock.sleep(20)
        assert await is_ready(there, "second")
        assert (await there.pod("second")).status.pod_ip == WANTED


async def test_address_of_another_range_has_no_effect(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.create(asking("web", "10.1.2.3"))
        await there.until_ready()
        assert (await there.pod()).status.pod_ip.startswith("127.9.")


@pytest.mark.parametrize("address", ["web.example", "127.9.0", "::1"])
async def test_malformed_address_is_named(
    clock: Clock, rng: Stream, log: Logger, address: str
) -> None:
    async with world(clock, rng, log) as there:
        await there.create(asking("web", address))
        await there.clock.sleep(5)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert f'annotations["{POD_IP}"]: "{address}" is not an IPv4 address' in waiting.message
        assert there.machine.starts == []


async def test_node_has_the_range_of_its_pods(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.clock.sleep(1)
        assert (await there.node()).spec.pod_cidr == "127.9.0.0/16"
        # An agent of an earlier version registered the node.
        await there.client.patch(NODE, "node-1", patch={"spec": {"podCIDR": None}})
        there.crash_agent()
        there.start_agent()
        await there.clock.sleep(1)
        assert (await there.node()).spec.pod_cidr == "127.9.0.0/16"
