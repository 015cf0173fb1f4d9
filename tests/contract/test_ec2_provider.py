"""What only the API of EC2 can get wrong: tokens, zones, shortages, lost answers, notices."""

import base64
import json
from collections.abc import Iterator
from decimal import Decimal

import pytest
from tests.support.cloud_server import IMAGE, REGION, ZONE, Cloud, CloudRefusal, cloud_server

from grange.api.kinds.machine import MachineOffering
from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    InstanceState,
    LaunchRequest,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)

pytestmark = pytest.mark.e2e
HERE = MachineOffering("t3.small", ZONE, price_per_hour="0.02")
THERE = MachineOffering("t3.small", "us-west-1b")
LOST = CloudRefusal(done=True)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with cloud_server() as running:
        yield running


def order(name: str = "p-1", *offerings: MachineOffering, user_data: str = "") -> LaunchRequest:
    return LaunchRequest(name, offerings or (HERE,), image=IMAGE["id"], user_data=user_data)


async def test_the_order_has_all_that_was_asked_for(cloud: Cloud) -> None:
    provider = cloud.provider(tags={"team": "a"}, volumeType="gp2")
    spot = MachineOffering("t3.small", ZONE, spot=True, price_per_hour="0.01")
    request = LaunchRequest(
        "p-1",
        (spot,),
        image=IMAGE["id"],
        user_data="#cloud-config\n",
        volume_gib=20,
        tags={"b": "c"},
    )
    made = await provider.launch(request)
    assert (made.machine, made.zone, made.spot, made.price_per_hour) == ("p-1", ZONE, True, "0.01")
    (sent,) = cloud.orders
    assert base64.b64decode(sent["UserData"]) == b"#cloud-config\n"
    assert sent["ClientToken"] == "p-1"
    assert sent["BlockDeviceMapping.1.Ebs.VolumeSize"] == "20"
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert sent["MetadataOptions.HttpTokens"] == "required"
    (seen,) = cloud.client().describe_instances()["Reservations"]
    tags = {tag["Key"]: tag["Value"] for tag in seen["Instances"][0]["Tags"]}
    assert {
        "team": "a",
        "b": "c",
        "Name": "p-1",
        "grange.dev/cluster": "ours",
    }.items() <= tags.items()
    (listed,) = await provider.instances()
    assert (listed.id, listed.price_per_hour, listed.spot) == (made.id, "0.01", True)
    assert {one.type for one in listed.addresses} >= {"InternalIP"}
    await provider.close()


async def test_one_launch_tries_one_offering(cloud: Cloud) -> None:
    """The token of a launch does not hold in another zone."""
    provider = cloud.provider()
    cloud.refuse("RunInstances", CloudRefusal("InsufficientInstanceCapacity", status=500))
    with pytest.raises(CapacityError) as error:
        await provider.launch(order("p-1", HERE, THERE))
    assert error.value.offering == HERE
    assert cloud.calls.count("RunInstances") == 1
    assert not await provider.instances()
    made = await provider.launch(order("p-2", THERE))
    assert made.zone == "us-west-1b"
    await provider.close()


@pytest.mark.parametrize("user_data", ["first", "second"])
async def test_a_launch_without_answer_is_found(cloud: Cloud, user_data: str) -> None:
    """Also when the repeated launch has another join token, which makes it another order."""
    provider = cloud.provider()
    cloud.refuse("RunInstances", LOST)
    with pytest.raises(ProviderError) as error:
        await provider.launch(order(user_data="first"))
    assert type(error.value) is ProviderError
    (there,) = await provider.instances()
    assert (await provider.launch(order(user_data=user_data))).id == there.id
    assert len(cloud.orders) == 1
    await provider.close()


async def test_a_used_token_without_instance_launches_nothing(cloud: Cloud) -> None:
    provider = cloud.provider()
    cloud.refuse("RunInstances", CloudRefusal("InternalError", status=500))
    for user_data in ("first", "second"):
        with pytest.raises(ProviderError) as error:
            await provider.launch(order(user_data=user_data))
        assert type(error.value) is ProviderError
    assert cloud.orders == []
    await provider.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("RequestLimitExceeded", ThrottledError),
        ("UnauthorizedOperation", MisconfiguredError),
        ("VcpuLimitExceeded", CapacityError),
    ],
)
async def test_a_refused_call_has_the_error_of_the_protocol(
    cloud: Cloud, code: str, expected: type[ProviderError]
) -> None:
    provider = cloud.provider()
    cloud.refuse("RunInstances", CloudRefusal(code))
    cloud.refuse("DescribeInstances", CloudRefusal(code))
    with pytest.raises(expected):
        await provider.launch(order())
    with pytest.raises(ProviderError):
        await provider.instances()
    await provider.close()


async def test_what_the_cloud_does_not_know_is_a_mistake_of_the_pool(cloud: Cloud) -> None:
    provider = cloud.provider()
    for request in (
        order("p-1", MachineOffering("t3.colossal", ZONE)),
        order("p-2", MachineOffering("t3.small")),
        LaunchRequest("p-3", (HERE,), image="ami-00000000", volume_gib=9),
    ):
        with pytest.raises(MisconfiguredError):
            await provider.launch(request)
    elsewhere = MachineOffering("t3.small", "us-west-1z")
    with pytest.raises(CapacityError) as error:
        await provider.launch(order("p-4", elsewhere))
    assert error.value.offering == elsewhere
    assert cloud.orders == []
    await provider.close()


async def test_a_subnet_without_addresses_is_left_alone(cloud: Cloud) -> None:
    api = cloud.client()
    vpc = api.describe_vpcs()["Vpcs"][0]["VpcId"]
    block = {"VpcId": vpc, "AvailabilityZone": ZONE}
    small = api.create_subnet(CidrBlock="172.31.240.0/28", **block)["Subnet"]["SubnetId"]
    large = api.create_subnet(CidrBlock="172.31.248.0/24", **block)["Subnet"]["SubnetId"]
    provider = cloud.provider(subnets=[small, large])
    cloud.refuse("RunInstances", CloudRefusal("InsufficientFreeAddressesInSubnet"))
    with pytest.raises(CapacityError):
        await provider.launch(order("p-1"))
    await provider.launch(order("p-2"))
    assert [one["SubnetId"] for one in cloud.orders] == [small]
    private = LaunchRequest("p-3", (HERE,), image=IMAGE["id"], private_ip_only=True)
    await provider.launch(private)
    await provider.close()
    public = cloud.provider(subnets=[small], addresses="Public")
    with pytest.raises(CapacityError, match="no Public subnet"):
        await public.launch(order("p-4"))
    await public.close()


async def test_subnets_that_there_are_not_are_a_mistake(cloud: Cloud) -> None:
    for config in ({"subnets": ["subnet-00000000"]}, {"subnetTags": {"no": "such"}}):
        provider = cloud.provider(**config)
        with pytest.raises(MisconfiguredError):
            await provider.launch(order())
        await provider.close()


async def test_all_pages_of_instances_are_listed(cloud: Cloud) -> None:
    provider = cloud.provider()
    for name in ("p-1", "p-2", "p-3"):
        await provider.launch(order(name))
    cloud.calls.clear()
    cloud.page_size = 2
    assert {one.machine for one in await provider.instances()} == {"p-1", "p-2", "p-3"}
    assert cloud.calls == ["DescribeInstances"] * 2
    await provider.close()


async def test_the_catalogue_has_prices_of_the_pool_and_of_zones(cloud: Cloud) -> None:
    provider = cloud.provider(prices={"t3.small": "0.5"})
    kinds = {kind.name: kind for kind in await provider.catalogue()}
    small = kinds["t3.small"]
    assert {one.price for one in small.offerings if not one.spot} == {Decimal("0.5")}
    assert {one.zone for one in small.offerings} == {ZONE, "us-west-1b"}
    assert any(one.spot for one in small.offerings)
    assert (small.burstable, small.baseline_milli) == (True, 400)
    assert kinds["g4dn.xlarge"].capacity["nvidia.com/gpu"] == "1"
    assert kinds["c7g.large"].labels["kubernetes.io/arch"] == "arm64"
    assert all(one.spot for one in kinds["m5.metal"].offerings)
    await provider.close()


async def test_a_disk_grows_and_never_shrinks(cloud: Cloud) -> None:
    provider, api = cloud.provider(), cloud.client()
    made = await provider.launch(order())
    for asked, size in ((30, 30), (20, 30)):
        assert await provider.resize_volume(made.id, asked)
        assert [one["Size"] for one in api.describe_volumes()["Volumes"]] == [size]
    with pytest.raises(InstanceGoneError):
        await provider.resize_volume("i-0123456789abcdef0", 30)
    await provider.close()


async def test_notices_come_from_the_queue_and_leave_it(cloud: Cloud) -> None:
    queue = cloud.client("sqs")
    url = queue.create_queue(QueueName="notices")["QueueUrl"]
    detail = {"instance-id": "i-1"}
    warning = {"detail-type": "EC2 Spot Instance Interruption Warning", "detail": detail}
    for body in ("nonsense", json.dumps(warning)):
        queue.send_message(QueueUrl=url, MessageBody=body)
    provider = cloud.provider(interruptionQueue=url)
    notices = provider.interruptions()
    assert (await anext(notices)).instance_id == "i-1"
    await notices.aclose()
    await provider.close()
    silent = cloud.provider()
    assert [one async for one in silent.interruptions()] == []
    await silent.close()


async def test_an_instance_that_cannot_be_switched_on_is_kept(cloud: Cloud) -> None:
    provider = cloud.provider()
    made = await provider.launch(order())
    await provider.stop(made.id)
    cloud.refuse("StartInstances", CloudRefusal("InsufficientInstanceCapacity", status=500))
    with pytest.raises(CapacityError):
        await provider.start(made.id)
    (kept,) = await provider.instances()
    assert kept.state is InstanceState.STOPPED
    await provider.close()


async def test_the_region_is_the_pools(cloud: Cloud) -> None:
    elsewhere = cloud.provider(region="eu-west-3")
    provider = cloud.provider(region=REGION)
    await provider.launch(order())
    assert await elsewhere.instances() == []
    assert len(await provider.instances()) == 1
    for one in (elsewhere, provider):
        await one.close()
