"""Machines of EC2 whose cluster names nodes after instances, as EKS does."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.support.cloud_server import IMAGE, REGION, Cloud, cloud_server
from tests.support.machine_world import MachineWorld

from grange.api.kinds.machine import NODE_POOL_LABEL, STARTUP_TAINT
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools
from grange.machines.providers.provider import Provider
from grange.sim import builders
from grange.sim.api_fixture import opened

pytestmark = pytest.mark.e2e
STARTUP = {"key": STARTUP_TAINT, "effect": "NoSchedule"}


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with cloud_server() as running:
        yield running


async def test_node_named_after_its_instance_serves_the_pod(
    cloud: Cloud, clock: Clock, rng: Stream, log: Logger
) -> None:
    class Ec2World(MachineWorld):
        def provider(self, name: str, config: Mapping[str, Any], tools: ProviderTools) -> Provider:
            return cloud.provider(tools.cluster)

    async with opened(Ec2World(clock, rng, log)) as world:
        world.begin()
        await world.add_pool(provider="ec2", bootImage=IMAGE, instanceTypes=["t3.small"])
        await world.add_pod("a")
        await world.count(MachinePhase.CREATED, 1)
        (seen,) = cloud.client().describe_instances()["Reservations"]
        (instance,) = seen["Instances"]
        name, zone = instance["PrivateDnsName"], instance["Placement"]["AvailabilityZone"]
        assert zone.startswith(REGION)
        id_ = f"aws:///{zone}/{instance['InstanceId']}"
        await builders.create_node(world.client, name, taints=[STARTUP], provider_id=id_)
        await world.bound("a", limit_s=60.0)
        assert (await world.pod("a")).spec.node_name == name
        (machine,) = await world.machines(MachinePhase.CLAIMED)
        assert (machine.status.node_name, machine.status.instance_id) == (
            name,
            instance["InstanceId"],
        )
        assert (await world.node(name)).metadata.labels[NODE_POOL_LABEL] == "p"
