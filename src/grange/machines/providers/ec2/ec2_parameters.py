"""Instances in the terms of the API: the parameters of a launch, and what a description means."""

import hashlib
from collections.abc import Mapping
from typing import Any

from grange.api.kinds.machine import MachineOffering
from grange.api.kinds.node import NodeAddress
from grange.machines.providers.ec2.ec2_config import Ec2Config
from grange.machines.providers.ec2.subnet_table import Subnet
from grange.machines.providers.provider import Instance, InstanceState, LaunchRequest

CLUSTER_TAG, MACHINE_TAG, PRICE_TAG = "grange.dev/cluster", "grange.dev/machine", "grange.dev/price"

STATES: Mapping[str, InstanceState] = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.ENDING,
}
"""States of instances that are not gone."""

_ADDRESSES = {
    "PrivateIpAddress": "InternalIP",
    "PublicIpAddress": "ExternalIP",
    "PrivateDnsName": "InternalDNS",
    "PublicDnsName": "ExternalDNS",
}
_TOKEN_MAX = 64


def client_token(machine: str) -> str:
    """The token of the launch of a machine; the API takes a limited length."""
    if len(machine) <= _TOKEN_MAX:
        return machine
    return hashlib.sha256(machine.encode()).hexdigest()


def run_parameters(
    config: Ec2Config,
    cluster: str,
    request: LaunchRequest,
    offering: MachineOffering,
    subnet: Subnet,
) -> dict[str, Any]:
    """The parameters of the call that launches an instance, but for its disk."""
    tags = {
        **config.tags,
        **request.tags,
        "Name": request.token,
        CLUSTER_TAG: cluster,
        MACHINE_TAG: request.token,
        PRICE_TAG: offering.price_per_hour,
    }
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    order: dict[str, Any] = {
        "ClientToken": client_token(request.token),
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": request.image,
        "InstanceType": offering.instance_type,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "SubnetId": subnet.id,
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": listed} for kind in ("instance", "volume")
        ],
        # Pods cannot read user data and credentials of the instance through its network.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    }
    if request.user_data:
        order["UserData"] = request.user_data
    if config.security_groups:
        order["SecurityGroupIds"] = list(config.security_groups)
    if config.key_pair:
        order["KeyName"] = config.key_pair
    if profile := config.instance_profile:
        order["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
    if offering.spot:
        once = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        order["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": once}
    return order


def root_disk(config: Ec2Config, image: Mapping[str, Any], gib: int) -> list[dict[str, Any]]:
    """The root disk of an instance, which cannot be smaller than its image's."""
    root = image.get("RootDeviceName", "/dev/sda1")
    least = [
        one["Ebs"].get("VolumeSize", 0)
        for one in image.get("BlockDeviceMappings", ())
        if one.get("DeviceName") == root and "Ebs" in one
    ]
    disk = {
        "VolumeSize": max([gib, *least]),
        "VolumeType": config.volume_type,
        "DeleteOnTermination": True,
    }
    return [{"DeviceName": root, "Ebs": disk}]


def instance_of(facts: Mapping[str, Any]) -> Instance:
    """The instance of a description; its state is one of ``STATES``."""
    tags = {tag["Key"]: tag["Value"] for tag in facts.get("Tags", ())}
    return Instance(
        id=facts["InstanceId"],
        machine=tags.get(MACHINE_TAG, ""),
        state=STATES[facts["State"]["Name"]],
        instance_type=facts["InstanceType"],
        zone=facts.get("Placement", {}).get("AvailabilityZone", ""),
        spot=facts.get("InstanceLifecycle") == "spot",
        price_per_hour=tags.get(PRICE_TAG, ""),
        addresses=tuple(
            NodeAddress(type=kind, address=facts[key])
            for key, kind in _ADDRESSES.items()
            if facts.get(key)
        ),
    )
