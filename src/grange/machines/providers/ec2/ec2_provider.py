"""The provider over the API of EC2.

A token holds for one zone and one set of parameters only: the same token in another zone launches a second
instance, and after a refusal the token is bound to what was refused. So one launch tries one offering, the first;
after a refusal the next machine, which has another name, is ordered with the next one.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from grange.api.kinds.machine import MachineOffering
from grange.base.offload import Threads
from grange.machines.catalogue import InstanceType
from grange.machines.providers import ProviderTools
from grange.machines.providers.ec2 import ec2_errors
from grange.machines.providers.ec2.ec2_catalogue import instance_types, spot_prices
from grange.machines.providers.ec2.ec2_config import Ec2Config
from grange.machines.providers.ec2.ec2_errors import translate
from grange.machines.providers.ec2.ec2_images import image_query, newest_image
from grange.machines.providers.ec2.ec2_parameters import (
    CLUSTER_TAG,
    MACHINE_TAG,
    STATES,
    instance_of,
    root_disk,
    run_parameters,
)
from grange.machines.providers.ec2.interruption_queue import read_notice
from grange.machines.providers.ec2.subnet_table import AddressAffinity, Subnet, SubnetTable
from grange.machines.providers.last_errors import LastErrors
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceGoneError,
    Interruption,
    LaunchRequest,
    MisconfiguredError,
    ProviderError,
)

T = TypeVar("T")

_WORKERS = 8
_POLL_S = 3.0
_RESIZE_S, _RESIZE_LOOK_S = 60.0, 1.0


@lru_cache(maxsize=1)
def _session() -> Any:
    """One session: each reads the descriptions of the services again, which are large."""
    return boto3.session.Session()


class Ec2Provider:
    """Instances of one region.

    Args:
        config: of the pool.
        tools: of this process; the setting ``endpoint`` replaces the URL of the API.
    """

    def __init__(self, config: Ec2Config, tools: ProviderTools) -> None:
        self._config, self._tools = config, tools
        # The controller repeats calls itself, and a shortage is an answer with status 500.
        options = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=_WORKERS,
            user_agent_appid="grange",
        )
        endpoint = tools.settings.get("endpoint")
        self._api, self._queue = (
            _session().client(
                service, config=options, region_name=config.region, endpoint_url=endpoint
            )
            for service in ("ec2", "sqs")
        )
        self._subnets = SubnetTable(self._read_subnets)
        self._images: dict[str, Mapping[str, Any]] = {}
        self._threads = Threads("ec2", _WORKERS)

    @property
    def can_stop(self) -> bool:
        """Instances on demand can; spot instances refuse it."""
        return True

    @property
    def can_wipe(self) -> bool:
        """There is no call for it."""
        return False

    async def catalogue(self) -> Sequence[InstanceType]:
        """The types that the zones of the pool's subnets have and whose price is known, by name."""
        return await self._run("catalogue", self._catalogue)

    async def resolve_image(self, spec: Mapping[str, str]) -> str:
        """See ``Provider.resolve_image``."""
        query = image_query(spec)
        return await self._run("DescribeImages", lambda: self._resolve_image(spec, query))

    async def launch(self, request: LaunchRequest) -> Instance:
        """See ``Provider.launch``; tries the first offering only."""
        if not request.offerings or not request.offerings[0].zone:
            raise MisconfiguredError(
                f"machine {request.token}: its offering has no zone; order another"
            )
        return await self._run("RunInstances", lambda: self._launch(request, request.offerings[0]))

    async def instances(self) -> Sequence[Instance]:
        """See ``Provider.instances``."""
        own = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._tools.cluster]}]
        return await self._run("DescribeInstances", lambda: self._describe(own))

    async def terminate(self, instance_id: str) -> None:
        """See ``Provider.terminate``."""
        try:
            await self._run(
                "TerminateInstances",
                lambda: self._api.terminate_instances(InstanceIds=[instance_id]),
            )
        except InstanceGoneError:
            return

    async def stop(self, instance_id: str) -> None:
        """See ``Provider.stop``."""
        await self._run(
            "StopInstances", lambda: self._api.stop_instances(InstanceIds=[instance_id])
        )

    async def start(self, instance_id: str) -> None:
        """See ``Provider.start``."""
        await self._run(
            "StartInstances", lambda: self._api.start_instances(InstanceIds=[instance_id])
        )

    async def wipe(self, instance_id: str) -> None:
        """There is no call for it.

        Raises:
            ProviderError: always.
        """
        raise ProviderError(f"instance {instance_id}: cannot be wiped; terminate it")

    async def resize_volume(self, instance_id: str, gib: int) -> bool:
        """Grow the root disk, and wait until it has its size; the file system grows at the next boot."""
        volume = await self._run("ModifyVolume", lambda: self._grow(instance_id, gib))
        if not volume:
            return False
        clock = self._tools.clock
        until = clock.monotonic() + _RESIZE_S
        while await self._run("DescribeVolumesModifications", lambda: self._is_growing(volume)):
            if clock.monotonic() >= until:
                raise ProviderError(
                    f"volume {volume}: still grows after {_RESIZE_S:g} s; look again"
                )
            await clock.sleep(_RESIZE_LOOK_S)
        return True

    async def interruptions(self) -> AsyncGenerator[Interruption, bool | None]:
        """Notices of the queue, each removed there when the next one is asked for."""
        errors = LastErrors()
        while self._config.interruption_queue:
            try:
                messages = await self._run("ReceiveMessage", self._receive)
                errors.changed("read", "")
            except ProviderError as error:
                if errors.changed("read", f"{error}"):
                    self._tools.log.warning("notices cannot be read", error=str(error))
                messages = []
            for message in messages:
                handled = True
                for notice in self._read(message):
                    handled = (yield notice) is not False and handled
                if not handled:
                    continue  # the queue shows it again after its visibility timeout
                handle = message["ReceiptHandle"]
                try:
                    await self._run("DeleteMessage", partial(self._delete, handle))
                    errors.changed("remove", "")
                except ProviderError as error:  # it comes again
                    if errors.changed("remove", f"{error}"):
                        self._tools.log.warning("a notice cannot be removed", error=str(error))
            if not messages:
                await self._tools.clock.sleep(_POLL_S)

    async def close(self) -> None:
        """End threads and connections."""
        self._threads.close()
        self._api.close()
        self._queue.close()

    # --- in threads ----------------------------------------------------------------------------------

    async def _run(self, call: str, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(work)
        except (ClientError, BotoCoreError) as error:
            raise translate(call, error) from error

    def _launch(self, request: LaunchRequest, offering: MachineOffering) -> Instance:
        affinity = AddressAffinity.PRIVATE if request.private_ip_only else self._config.addresses
        self._subnets.refresh(self._tools.clock.monotonic())
        for subnet in self._subnets.candidates(offering.zone, affinity):
            try:
                order = run_parameters(self._config, self._tools.cluster, request, offering, subnet)
                if request.volume_gib:
                    order["BlockDeviceMappings"] = root_disk(
                        self._config, self._image(request.image), request.volume_gib
                    )
                reply = self._api.run_instances(**order)
            except ClientError as error:
                code = ec2_errors.error_code(error)
                if code == ec2_errors.IS_USED_WITH_OTHERS:
                    return self._find(request.token, error)
                if code == ec2_errors.HAS_ENDED:
                    raise InstanceGoneError(
                        f"instance of {request.token} has ended; order another"
                    ) from error
                if code == ec2_errors.NO_ADDRESSES:
                    # The token is bound to this subnet now, so another one would be refused.
                    self._subnets.exhaust(subnet.id)
                raise self._about(offering, translate("RunInstances", error)) from error
            return instance_of(reply["Instances"][0])
        raise CapacityError(
            f"zone {offering.zone}: no {affinity.value} subnet with a free address; add one or wait",
            offering=offering,
        )

    def _image(self, image_id: str) -> Mapping[str, Any]:
        if image_id not in self._images:
            found = self._api.describe_images(ImageIds=[image_id])["Images"]
            if not found:
                raise MisconfiguredError(f"image {image_id}: there is none; change spec.bootImage")
            self._images[image_id] = found[0]
        return self._images[image_id]

    def _find(self, token: str, error: ClientError) -> Instance:
        """What was launched under a token with other parameters, e.g. another join token."""
        filters = [
            {"Name": f"tag:{MACHINE_TAG}", "Values": [token]},
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._tools.cluster]},
        ]
        found = self._describe(filters)
        if found:
            return found[0]
        # It may not be listed yet, has ended, or was refused.
        raise ProviderError(
            f"machine {token}: was launched with other parameters and is not listed; look again"
        ) from error

    def _describe(self, filters: list[dict[str, Any]]) -> list[Instance]:
        there = [*filters, {"Name": "instance-state-name", "Values": [*STATES]}]
        pages = self._api.get_paginator("describe_instances").paginate(Filters=there)
        return [
            instance_of(one)
            for page in pages
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
            if one["State"]["Name"] in STATES
        ]

    def _about(self, offering: MachineOffering, error: ProviderError) -> ProviderError:
        if isinstance(error, CapacityError):
            error.offering = offering
        return error

    def _resolve_image(self, spec: Mapping[str, str], query: dict[str, Any]) -> str:
        pages = self._api.get_paginator("describe_images").paginate(**query)
        found = newest_image(image for page in pages for image in page["Images"])
        if found is None:
            shown = (
                ", ".join(f"{key}={value}" for key, value in sorted(spec.items())) or "the default"
            )
            raise MisconfiguredError(f"spec.bootImage: no image for {shown}; change it")
        self._images[found["ImageId"]] = found
        return str(found["ImageId"])

    def _catalogue(self) -> list[InstanceType]:
        self._subnets.refresh(self._tools.clock.monotonic())
        usable = self._subnets.zones(AddressAffinity.ANY)
        zones: dict[str, set[str]] = {}
        for one in self._pages(
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
        ):
            if one["Location"] in usable:
                zones.setdefault(one["InstanceType"], set()).add(one["Location"])
        now = self._tools.clock.now()
        history = self._pages(
            "describe_spot_price_history",
            "SpotPriceHistory",
            StartTime=now,
            ProductDescriptions=["Linux/UNIX"],
        )
        described = self._pages("describe_instance_types", "InstanceTypes")
        spot = spot_prices(one for one in history if one["AvailabilityZone"] in usable)
        return instance_types(described, zones, spot, self._config.prices)

    def _pages(self, call: str, key: str, **query: object) -> Iterable[Mapping[str, Any]]:
        for page in self._api.get_paginator(call).paginate(**query):
            yield from page[key]

    def _read_subnets(self) -> list[Subnet]:
        config, query = self._config, dict[str, Any]()
        if config.subnets:
            query["SubnetIds"] = list(config.subnets)
        elif config.subnet_tags:
            query["Filters"] = [
                {"Name": f"tag:{key}", "Values": [value]}
                for key, value in sorted(config.subnet_tags.items())
            ]
        else:
            query["Filters"] = [{"Name": "default-for-az", "Values": ["true"]}]
        try:
            found = list(self._pages("describe_subnets", "Subnets", **query))
        except (ClientError, BotoCoreError) as error:
            raise translate("DescribeSubnets", error) from error
        if not found:
            raise MisconfiguredError("spec.providerConfig: no subnet matches; name others")
        return [
            Subnet(
                one["SubnetId"],
                one["AvailabilityZone"],
                is_public=bool(one.get("MapPublicIpOnLaunch")),
                free_addresses=one["AvailableIpAddressCount"],
            )
            for one in found
        ]

    def _grow(self, instance_id: str, gib: int) -> str:
        reply = self._api.describe_instances(InstanceIds=[instance_id])
        facts = reply["Reservations"][0]["Instances"][0]
        for disk in facts.get("BlockDeviceMappings", ()):
            if disk["DeviceName"] == facts.get("RootDeviceName") and "Ebs" in disk:
                volume = str(disk["Ebs"]["VolumeId"])
                known = self._api.describe_volumes(VolumeIds=[volume])["Volumes"][0]
                if known["Size"] < gib:
                    self._api.modify_volume(VolumeId=volume, Size=gib)
                return volume
        return ""

    def _is_growing(self, volume: str) -> bool:
        reply = self._api.describe_volumes_modifications(
            Filters=[{"Name": "volume-id", "Values": [volume]}]
        )
        states = [one["ModificationState"] for one in reply["VolumesModifications"]]
        if states and states[-1] == "failed":
            raise ProviderError(f"volume {volume}: cannot grow; it has its former size")
        return bool(states) and states[-1] == "modifying"

    def _receive(self) -> list[dict[str, Any]]:
        reply = self._queue.receive_message(
            QueueUrl=self._config.interruption_queue, MaxNumberOfMessages=10
        )
        return list(reply.get("Messages", ()))

    def _read(self, message: Mapping[str, Any]) -> tuple[Interruption, ...]:
        try:
            return read_notice(message["Body"], self._tools.clock.now())
        except ValueError as error:
            self._tools.log.warning("a message is no event and is removed", error=str(error))
            return ()

    def _delete(self, handle: str) -> None:
        self._queue.delete_message(QueueUrl=self._config.interruption_queue, ReceiptHandle=handle)
