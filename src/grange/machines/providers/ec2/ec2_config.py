"""The ``providerConfig`` of pools of EC2."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from grange.machines.providers.config_reader import ConfigReader
from grange.machines.providers.ec2.subnet_table import AddressAffinity

_FIELDS = frozenset(
    {
        *("addresses", "instanceProfile", "interruptionQueue", "keyPair", "prices", "region"),
        *("securityGroups", "subnetTags", "subnets", "tags", "volumeType"),
    }
)
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ec2Config:
    """What a pool states.

    Attributes:
        region: where.
        subnets, subnet_tags: which subnets, by id or by tags; neither: the default ones of the account.
        addresses: in which subnets machines of pods that do not ask for private addresses may be.
        security_groups: of the machines; empty: the default one of the network.
        instance_profile: name or ARN.
        key_pair: name.
        tags: further tags of instances and disks.
        prices: on demand, per hour, by type; they replace the ones that are known.
        interruption_queue: URL of a queue with events about instances.
        volume_type: of root disks.
    """

    region: str
    subnets: tuple[str, ...] = ()
    subnet_tags: Mapping[str, str] = field(default_factory=dict)
    addresses: AddressAffinity = AddressAffinity.ANY
    security_groups: tuple[str, ...] = ()
    instance_profile: str = ""
    key_pair: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Decimal] = field(default_factory=dict)
    interruption_queue: str = ""
    volume_type: str = "gp3"


def read_config(given: object) -> Ec2Config:
    """The configuration of a pool.

    Raises:
        MisconfiguredError: it is malformed.
    """
    reader = ConfigReader(given, _FIELDS)
    region = reader.text("region")
    if not _REGION.fullmatch(region):
        raise reader.wrong("region", f"is {region!r}", "use one such as eu-central-1")
    subnets, subnet_tags = reader.texts("subnets"), reader.strings("subnetTags")
    if subnets and subnet_tags:
        raise reader.wrong("subnetTags", "cannot be used with subnets", "remove one of them")
    queue = reader.text("interruptionQueue", "")
    if queue and not queue.startswith(("https://", "http://")):
        raise reader.wrong("interruptionQueue", "is no URL", "use the URL of the queue")
    tags = reader.strings("tags")
    for key in tags:
        if key.startswith(("grange.dev/", "aws:")):
            raise reader.wrong(f"tags.{key}", "is reserved", "use another key")
    affinities = tuple(one.value for one in AddressAffinity)
    return Ec2Config(
        region=region,
        subnets=subnets,
        subnet_tags=subnet_tags,
        addresses=AddressAffinity(reader.choice("addresses", affinities)),
        security_groups=reader.texts("securityGroups"),
        instance_profile=reader.text("instanceProfile", ""),
        key_pair=reader.text("keyPair", ""),
        tags=tags,
        prices=reader.prices("prices"),
        interruption_queue=queue,
        volume_type=reader.text("volumeType", "gp3"),
    )
