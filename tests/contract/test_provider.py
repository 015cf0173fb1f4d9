"""What every provider of machines must do.

A provider joins by one entry of ``CASES``: how a case for it is opened. Cases give what the suite
cannot know: an offering that can be had, a spec of images, and how long states take.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.support.cloud_server import IMAGE, ZONE, cloud_server
from tests.support.library_clouds import (
    DigitalOcean,
    NamedDummyDriver,
    OpenStack,
    dummy_provider,
    library_cloud,
)
from tests.support.local_machines import local_machines
from tests.support.ssh_hosts import ssh_hosts

from grange.api.kinds.machine import MachineOffering
from grange.base.clock import Clock
from grange.machines.providers.provider import (
    Instance,
    InstanceGoneError,
    InstanceState,
    LaunchRequest,
    MisconfiguredError,
    Provider,
)
from grange.machines.providers.simulated.cloud import SimulatedCloud
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider


@dataclass
class ProviderCase:
    """One provider under test.

    Attributes:
        provider: of a cluster without instances.
        stranger: of another cluster, in the same account; None where there can be none.
        clock: of the waits.
        offering: that can be had, at least twice if there is no other one.
        other: for the second machine.
        image: a spec that an image matches.
        unknown_image: a spec that none matches.
        limit_s: no state takes longer.
    """

    provider: Provider
    clock: Clock
    offering: MachineOffering
    other: MachineOffering | None = None
    stranger: Provider | None = None
    image: Mapping[str, str] = field(default_factory=dict)
    unknown_image: Mapping[str, str] = field(default_factory=lambda: {"name": "no-such-image"})
    limit_s: float = 60.0

    async def launch(self, token: str) -> Instance:
        """Launch one machine."""
        image = await self.provider.resolve_image(self.image)
        labels = {"grange.dev/node-pool": "p"}
        second = self.other is not None and token.endswith("-2")
        offering = self.other if self.other is not None and second else self.offering
        return await self.provider.launch(
            LaunchRequest(token, (offering,), image=image, labels=labels)
        )

    async def listed(self) -> dict[str, Instance]:
        """What is listed, by token."""
        return {one.machine: one for one in await self.provider.instances()}

    async def until(self, condition: Callable[[dict[str, Instance]], bool]) -> dict[str, Instance]:
        """Wait until the list is so."""
        async with self.clock.timeout(self.limit_s):
            while not condition(found := await self.listed()):
                await self.clock.sleep(0.1)
        return found


OpenCase = Callable[[Clock], AbstractAsyncContextManager[ProviderCase]]


@asynccontextmanager
async def simulated(clock: Clock) -> AsyncIterator[ProviderCase]:
    cloud = SimulatedCloud(clock)
    yield ProviderCase(
        SimulatedProvider(cloud, "ours"),
        clock,
        MachineOffering("small", "a"),
        stranger=SimulatedProvider(cloud, "theirs"),
    )


@asynccontextmanager
async def local(clock: Clock) -> AsyncIterator[ProviderCase]:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        async with local_machines(root, "theirs") as other, local_machines(root, "ours") as ours:
            yield ProviderCase(ours, clock, MachineOffering("small"), stranger=other)


@asynccontextmanager
async def ec2(clock: Clock) -> AsyncIterator[ProviderCase]:
    with cloud_server() as cloud:
        ours, theirs = cloud.provider("ours"), cloud.provider("theirs")
        yield ProviderCase(
            ours, clock, MachineOffering("t3.small", ZONE), stranger=theirs, image=IMAGE
        )
        await ours.close()
        await theirs.close()


@asynccontextmanager
async def ssh(clock: Clock) -> AsyncIterator[ProviderCase]:
    with TemporaryDirectory() as directory:
        async with ssh_hosts(Path(directory), clock, "h-1", "h-2") as hosts:
            ours, theirs = hosts.provider("ours"), hosts.provider("theirs")
            offering, other = MachineOffering("rack", "h-1"), MachineOffering("rack", "h-2")
            yield ProviderCase(ours, clock, offering, other, theirs)
            await ours.close()
            await theirs.close()


@asynccontextmanager
async def libcloud_openstack(clock: Clock) -> AsyncIterator[ProviderCase]:
    with library_cloud(OpenStack()) as cloud:
        ours, theirs = cloud.provider("ours"), cloud.provider("theirs")
        image = {"name": "debian-*"}
        yield ProviderCase(ours, clock, MachineOffering("m1.small"), stranger=theirs, image=image)
        await ours.close()
        await theirs.close()


@asynccontextmanager
async def libcloud_digitalocean(clock: Clock) -> AsyncIterator[ProviderCase]:
    with library_cloud(DigitalOcean()) as cloud:
        ours, theirs = cloud.provider("ours"), cloud.provider("theirs")
        offering, image = MachineOffering("s-1vcpu-1gb", "fra1"), {"id": "debian-13"}
        yield ProviderCase(ours, clock, offering, stranger=theirs, image=image)
        await ours.close()
        await theirs.close()


@asynccontextmanager
async def libcloud_dummy(clock: Clock) -> AsyncIterator[ProviderCase]:
    driver = NamedDummyDriver()
    ours, theirs = dummy_provider("ours", driver), dummy_provider("theirs", driver)
    image = {"name": "Ubuntu *"}
    yield ProviderCase(ours, clock, MachineOffering("2"), stranger=theirs, image=image)
    await ours.close()
    await theirs.close()


SOCKETS = {"ec2", "libcloud-digitalocean", "libcloud-dummy", "libcloud-openstack", "ssh"}
CASES: Mapping[str, OpenCase] = {
    "ec2": ec2,
    "libcloud-digitalocean": libcloud_digitalocean,
    "libcloud-dummy": libcloud_dummy,
    "libcloud-openstack": libcloud_openstack,
    "local": local,
    "simulated": simulated,
    "ssh": ssh,
}


@pytest.fixture(
    params=[
        pytest.param(case, id=name, marks=[pytest.mark.e2e] if name in SOCKETS else [])
        for name, case in CASES.items()
    ]
)
def opened(
    request: pytest.FixtureRequest, clock: Clock
) -> AbstractAsyncContextManager[ProviderCase]:
    """The provider under test, for one ``async with``."""
    case: OpenCase = request.param
    return case(clock)


Opened = AbstractAsyncContextManager[ProviderCase]


def runs(token: str) -> Callable[[dict[str, Instance]], bool]:
    """Whether the instance of a token runs."""
    return lambda found: token in found and found[token].state is InstanceState.RUNNING


def is_gone(token: str) -> Callable[[dict[str, Instance]], bool]:
    """Whether the instance of a token is not listed."""
    return lambda found: token not in found


async def test_a_launched_instance_is_listed_and_runs(opened: Opened) -> None:
    async with opened as case:
        made = await case.launch("p-1")
        assert made.machine == "p-1"
        found = (await case.until(runs("p-1")))["p-1"]
        assert found.id == made.id
        assert found.instance_type == case.offering.instance_type
        assert found.spot is case.offering.spot


async def test_a_token_launches_one_instance(opened: Opened) -> None:
    """A repeated launch is how the answer of an earlier one is found out."""
    async with opened as case:
        first = await case.launch("p-1")
        assert (await case.launch("p-1")).id == first.id
        await case.until(runs("p-1"))
        assert (await case.launch("p-1")).id == first.id
        assert len(await case.provider.instances()) == 1


async def test_other_tokens_launch_others(opened: Opened) -> None:
    async with opened as case:
        ids = {(await case.launch(token)).id for token in ("p-1", "p-2")}
        assert len(ids) == 2
        found = await case.until(lambda found: {"p-1", "p-2"} <= {*found})
        assert {one.id for one in found.values()} == ids


async def test_an_ended_instance_is_not_listed(opened: Opened) -> None:
    async with opened as case:
        made = await case.launch("p-1")
        await case.until(runs("p-1"))
        await case.provider.terminate(made.id)
        await case.until(is_gone("p-1"))


async def test_a_booting_instance_can_be_ended(opened: Opened) -> None:
    async with opened as case:
        made = await case.launch("p-1")
        await case.provider.terminate(made.id)
        await case.until(is_gone("p-1"))


async def test_ending_what_is_gone_does_nothing(opened: Opened) -> None:
    async with opened as case:
        made = await case.launch("p-1")
        for _ in range(2):
            await case.provider.terminate(made.id)
        await case.until(is_gone("p-1"))
        await case.provider.terminate(made.id)
        await case.provider.terminate("never-was")


async def test_the_token_of_an_ended_instance_is_used(opened: Opened) -> None:
    """A late launch of a former controller must not launch a second instance."""
    async with opened as case:
        made = await case.launch("p-1")
        await case.until(runs("p-1"))
        await case.provider.terminate(made.id)
        await case.until(is_gone("p-1"))
        with pytest.raises(InstanceGoneError):
            await case.launch("p-1")
        assert await case.listed() == {}


async def test_instances_of_others_are_not_seen(opened: Opened) -> None:
    async with opened as case:
        if case.stranger is None:
            return
        await case.launch("p-1")
        await case.until(runs("p-1"))
        assert not await case.stranger.instances()


async def test_the_catalogue_is_sorted_and_can_be_bought(opened: Opened) -> None:
    async with opened as case:
        names = [kind.name for kind in await case.provider.catalogue()]
        assert names == sorted(names)
        assert case.offering.instance_type in names
        for kind in await case.provider.catalogue():
            assert kind.offerings
            assert {"cpu", "memory"} <= {*kind.capacity}


async def test_an_unknown_image_is_a_mistake_of_the_pool(opened: Opened) -> None:
    async with opened as case:
        with pytest.raises(MisconfiguredError):
            await case.provider.resolve_image(case.unknown_image)


async def test_an_unknown_type_launches_nothing(opened: Opened) -> None:
    async with opened as case:
        request = LaunchRequest("p-1", (MachineOffering("no-such-type"),))
        with pytest.raises(MisconfiguredError):
            await case.provider.launch(request)
        assert await case.listed() == {}


async def test_what_is_switched_off_is_kept_and_starts_again(opened: Opened) -> None:
    async with opened as case:
        if not case.provider.can_stop:
            return
        made = await case.launch("p-1")
        await case.until(runs("p-1"))
        await case.provider.stop(made.id)
        await case.until(lambda found: found["p-1"].state is InstanceState.STOPPED)
        await case.provider.start(made.id)
        assert (await case.until(runs("p-1")))["p-1"].id == made.id
        with pytest.raises(InstanceGoneError):
            await case.provider.start("never-was")


async def test_a_wiped_instance_goes_on_running(opened: Opened) -> None:
    async with opened as case:
        if not case.provider.can_wipe:
            return
        made = await case.launch("p-1")
        await case.until(runs("p-1"))
        await case.provider.wipe(made.id)
        await case.until(runs("p-1"))
