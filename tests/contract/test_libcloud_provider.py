"""What only drivers of libcloud can get wrong: marks, clouds without tokens, lost answers, shortages, credentials."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from libcloud.compute.drivers.dummy import DummyNodeDriver
from tests.support.library_clouds import (
    IMAGE_ID,
    DigitalOcean,
    HttpFault,
    LibraryCloud,
    NamedDummyDriver,
    OpenStack,
    dummy_provider,
    library_cloud,
)

from grange.api.kinds.machine import MachineOffering
from grange.machines.providers.provider import (
    CapacityError,
    InstanceState,
    LaunchRequest,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)

pytestmark = pytest.mark.e2e
SMALL, DROPLET = MachineOffering("m1.small", "az-1"), MachineOffering("s-1vcpu-1gb", "fra1")
SERVERS, SERVER_LIST = "POST /compute/servers", "GET /compute/servers/detail"
LOST = HttpFault(done=True)


@pytest.fixture
def stack() -> Iterator[LibraryCloud]:
    with library_cloud(OpenStack()) as running:
        yield running


@pytest.fixture
def ocean() -> Iterator[LibraryCloud]:
    with library_cloud(DigitalOcean()) as running:
        yield running


def order(name: str = "p-1", offering: MachineOffering = SMALL, **more: object) -> LaunchRequest:
    image = "7" if offering is DROPLET else IMAGE_ID
    return LaunchRequest(name, (offering,), image=image, **more)  # type: ignore[arg-type]  # by name


async def test_an_order_to_openstack_has_all_that_was_asked_for(stack: LibraryCloud) -> None:
    arguments = {
        "networks": ["net-1"],
        "ex_security_groups": ["inner"],
        "ex_keyname": "ops",
        "ex_metadata": {"team": "a"},
    }
    provider = stack.provider(arguments=arguments)
    made = await provider.launch(order(user_data="#cloud-config\n"))
    assert (made.machine, made.instance_type, made.zone) == ("p-1", "m1.small", "az-1")
    assert made.price_per_hour == "0.02"
    (sent,) = stack.orders
    assert base64.b64decode(sent["user_data"]) == b"#cloud-config\n"
    assert sent["networks"] == [{"uuid": "net-1"}]
    assert sent["security_groups"] == [{"name": "inner"}]
    assert (sent["flavorRef"], sent["availability_zone"], sent["key_name"]) == ("1", "az-1", "ops")
    assert sent["metadata"] == {
        "team": "a",
        "grange-cluster": "ours",
        "grange-machine": "p-1",
        "grange-type": "m1.small",
        "grange-zone": "az-1",
        "grange-price": "0.02",
    }
    await provider.instances()
    (listed,) = await provider.instances()
    assert (listed.id, listed.state, listed.zone) == (made.id, InstanceState.RUNNING, "az-1")
    assert [one.address for one in listed.addresses] == ["10.0.0.4"]
    await provider.close()


async def test_an_order_to_digitalocean_has_tags(ocean: LibraryCloud) -> None:
    provider = ocean.provider(arguments={"ex_create_attr": {"tags": ["team-a"], "ipv6": True}})
    made = await provider.launch(order("pool.x-1", DROPLET, user_data="#cloud-config\n"))
    (sent,) = ocean.orders
    assert (sent["region"], sent["size"], sent["ipv6"]) == ("fra1", "s-1vcpu-1gb", True)
    assert sent["user_data"] == "#cloud-config\n"
    assert sent["tags"] == [
        "team-a",
        "grange-cluster:ours",
        "grange-machine:pool_x-1",
        "grange-type:s-1vcpu-1gb",
        "grange-zone:fra1",
        "grange-price:0_01",
    ]
    (listed,) = await provider.instances()
    assert (
        (listed.machine, listed.price_per_hour)
        == ("pool.x-1", "0.01")
        == (
            made.machine,
            made.price_per_hour,
        )
    )
    assert [one.type for one in listed.addresses] == ["ExternalIP"]
    await provider.close()


async def test_a_lost_answer_of_a_creation_is_found(stack: LibraryCloud) -> None:
    provider = stack.provider()
    stack.fail(SERVERS, LOST)
    made = await provider.launch(order())
    assert (await provider.launch(order())).id == made.id
    assert len(stack.orders) == 1
    await provider.close()


async def test_an_unknown_outcome_is_not_called_a_refusal(stack: LibraryCloud) -> None:
    """The creation was refused, as it seems, and the look that would show it fails."""
    provider = stack.provider()
    stack.fail(SERVERS, HttpFault(403, "Quota exceeded", done=True))
    stack.fail(SERVER_LIST, None, HttpFault(503))
    with pytest.raises(ProviderError) as error:
        await provider.launch(order())
    assert type(error.value) is ProviderError
    assert (await provider.launch(order())).machine == "p-1"
    assert len(stack.orders) == 1
    await provider.close()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (HttpFault(500, "out of order"), ProviderError),
        (HttpFault(409, "Multiple possible networks found"), MisconfiguredError),
        (HttpFault(409, "Conflict"), ProviderError),
        (HttpFault(400, "Invalid key_name"), MisconfiguredError),
        (HttpFault(500, "No valid host was found."), CapacityError),
        (HttpFault(403, "Quota exceeded for cores"), CapacityError),
        (HttpFault(403, "Policy does not allow it"), MisconfiguredError),
        (HttpFault(429, "slow down", {"Retry-After": "7"}), ThrottledError),
    ],
)
async def test_a_refused_creation_has_the_error_of_the_protocol(
    stack: LibraryCloud, fault: HttpFault, expected: type[ProviderError]
) -> None:
    provider = stack.provider()
    stack.fail(SERVERS, fault)
    with pytest.raises(ProviderError) as error:
        await provider.launch(order())
    assert type(error.value) is expected
    if isinstance(error.value, CapacityError):
        assert error.value.offering == SMALL
        assert error.value.quota is (fault.status == 403)
    if isinstance(error.value, ThrottledError):
        assert error.value.retry_after_s == 7.0
    assert stack.orders == []
    await provider.launch(order())
    assert len(stack.orders) == 1
    await provider.close()


async def test_a_droplet_limit_is_a_quota(ocean: LibraryCloud) -> None:
    provider = ocean.provider()
    ocean.fail(
        "POST /v2/droplets",
        HttpFault(422, "creating this/these droplet(s) will exceed your droplet limit"),
        HttpFault(422, "Size is not available in this region."),
    )
    for quota in (True, False):
        with pytest.raises(CapacityError) as error:
            await provider.launch(order(offering=DROPLET))
        assert (error.value.quota, error.value.offering) == (quota, DROPLET)
    await provider.close()


async def test_an_instance_that_failed_to_start_is_ended(stack: LibraryCloud) -> None:
    """And the next order of its type is a shortage, so that others are tried."""
    provider = stack.provider()
    stack.fault_of_new = "No valid host was found."
    made = await provider.launch(order("p-1"))
    (failed,) = await provider.instances()
    assert (failed.id, failed.state) == (made.id, InstanceState.ENDING)
    await provider.instances()
    assert await provider.instances() == []
    with pytest.raises(CapacityError, match="No valid host") as error:
        await provider.launch(order("p-2"))
    assert error.value.offering == SMALL
    await provider.launch(order("p-3"))
    assert len(stack.orders) == 2
    await provider.close()


async def test_all_pages_of_instances_are_listed(stack: LibraryCloud, ocean: LibraryCloud) -> None:
    for cloud, offering in ((stack, SMALL), (ocean, DROPLET)):
        provider = cloud.provider()
        names = {"p-1", "p-2", "p-3"}
        for name in sorted(names):
            await provider.launch(order(name, offering))
        cloud.page_size = 2
        assert {one.machine for one in await provider.instances()} == names
        await provider.close()


async def test_a_list_that_fails_is_no_empty_list(stack: LibraryCloud) -> None:
    provider = stack.provider()
    await provider.launch(order())
    for fault in (HttpFault(500), HttpFault(404), HttpFault()):
        stack.fail(SERVER_LIST, fault)
        with pytest.raises(ProviderError):
            await provider.instances()
    assert len(await provider.instances()) == 1
    await provider.close()


async def test_two_processes_that_launch_at_once_keep_one(stack: LibraryCloud) -> None:
    first, second = stack.provider(), stack.provider()
    made = await first.launch(order())
    stack.stale_lists = 1
    assert (await second.launch(order())).id == made.id
    assert len(stack.orders) == 2
    await first.instances()
    assert [one.id for one in await first.instances()] == [made.id]
    for one in (first, second):
        await one.close()


async def test_refused_credentials_are_read_again(stack: LibraryCloud) -> None:
    provider = stack.provider()
    stack.refused = True
    with pytest.raises(MisconfiguredError, match=r"change the Secret") as error:
        await provider.instances()
    assert "hush-hush" not in str(error.value)
    stack.refused = False
    assert await provider.instances() == []
    await provider.close()


@pytest.mark.parametrize(
    "request_",
    [
        order(offering=MachineOffering("m1.small", spot=True)),
        order(private_ip_only=True),
        order(volume_gib=100),
    ],
)
async def test_what_the_cloud_cannot_do_launches_nothing(
    stack: LibraryCloud, request_: LaunchRequest
) -> None:
    provider = stack.provider()
    with pytest.raises(MisconfiguredError, match="; "):
        await provider.launch(request_)
    assert stack.orders == []
    await provider.close()


@pytest.mark.parametrize(
    "config",
    [
        {"options": {"api_version": "9"}},
        {"arguments": {"no_such": "x"}},
    ],
)
async def test_arguments_that_the_driver_has_not_are_a_mistake(
    stack: LibraryCloud, config: dict[str, Any]
) -> None:
    provider = stack.provider(**config)
    with pytest.raises(MisconfiguredError):
        await provider.launch(order())
    assert stack.orders == []
    await provider.close()


async def test_sizes_without_a_price_are_not_offered(stack: LibraryCloud) -> None:
    provider = stack.provider(prices={"m1.large": "0"}, zones=["az-2", "az-1"])
    (kind,) = await provider.catalogue()
    assert kind.name == "m1.large"
    assert [one.zone for one in kind.offerings] == ["az-1", "az-2"]
    assert kind.capacity == {"cpu": "8", "memory": "2048Mi", "pods": "110"}
    assert kind.labels["kubernetes.io/arch"] == "amd64"
    await provider.close()
    silent = stack.provider(prices={})
    with pytest.raises(MisconfiguredError, match="set prices"):
        await silent.catalogue()
    await silent.close()


async def test_a_driver_that_keeps_no_marks_is_refused() -> None:
    """The dummy driver gives instances other names, so none could be found again."""
    driver = DummyNodeDriver("0")
    provider = dummy_provider(driver=driver)
    before = [node.id for node in driver.list_nodes()]
    request = LaunchRequest("p-1", (MachineOffering("2"),), image="1")
    with pytest.raises(MisconfiguredError, match=r"does not keep the mark .* was ended; use "):
        await provider.launch(request)
    with pytest.raises(MisconfiguredError, match="does not keep the mark"):
        await provider.catalogue()
    assert [node.id for node in driver.list_nodes()] == before
    assert await provider.instances() == []
    await provider.close()


async def test_user_data_need_an_argument_of_the_driver() -> None:
    driver = NamedDummyDriver()
    request = LaunchRequest("p-1", (MachineOffering("2"),), image="1", user_data="#!/bin/sh")
    for config in ({}, {"userDataArgument": "ex_userdata"}):
        provider = dummy_provider(driver=driver, **config)
        with pytest.raises(MisconfiguredError, match=r"^spec\.providerConfig\."):
            await provider.launch(request)
        assert await provider.instances() == []
        await provider.close()


async def test_instances_of_others_are_never_ended() -> None:
    driver = NamedDummyDriver()
    provider = dummy_provider(driver=driver)
    before = [str(node.id) for node in driver.list_nodes()]
    assert before
    for name in before:
        await provider.terminate(name)
    assert [str(node.id) for node in driver.list_nodes()] == before
    assert await provider.instances() == []
    await provider.close()


async def test_a_name_that_no_host_can_have_launches_nothing() -> None:
    provider = dummy_provider(driver=NamedDummyDriver())
    for name in ("p" * 60, "pool.x-1"):
        with pytest.raises(MisconfiguredError, match="shorter name without dots"):
            await provider.launch(LaunchRequest(name, (MachineOffering("2"),), image="1"))
    await provider.close()
