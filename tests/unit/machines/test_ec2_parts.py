"""The parts of the provider ``ec2`` that call nothing: F66 to F68, prices, types, images, notices."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from grange.api import timestamps
from grange.machines.catalogue import Offering
from grange.machines.providers.ec2.ec2_catalogue import instance_types, spot_prices
from grange.machines.providers.ec2.ec2_config import read_config
from grange.machines.providers.ec2.ec2_errors import translate
from grange.machines.providers.ec2.ec2_images import image_query, newest_image
from grange.machines.providers.ec2.ec2_parameters import client_token, root_disk
from grange.machines.providers.ec2.ec2_prices import baseline_milli, known_price
from grange.machines.providers.ec2.interruption_queue import read_notice
from grange.machines.providers.ec2.subnet_table import AddressAffinity, Subnet, SubnetTable
from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    Interruption,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANY, PUBLIC, PRIVATE = AddressAffinity.ANY, AddressAffinity.PUBLIC, AddressAffinity.PRIVATE


def table(*subnets: Subnet) -> SubnetTable:
    made = SubnetTable(lambda: subnets)
    made.refresh(0.0)
    return made


@pytest.mark.parametrize(
    ("affinity", "ids"), [(ANY, ["open", "inner"]), (PUBLIC, ["open"]), (PRIVATE, ["inner"])]
)
def test_f66_affinity_decides_the_subnets(affinity: AddressAffinity, ids: list[str]) -> None:
    both = table(
        Subnet("open", "a", is_public=True, free_addresses=9), Subnet("inner", "a", False, 8)
    )
    assert [one.id for one in both.candidates("a", affinity)] == ids
    assert both.zones(affinity) == {"a"}


def test_f67_a_subnet_without_addresses_is_hidden_alone() -> None:
    both = table(
        Subnet("s1", "a", free_addresses=5),
        Subnet("s2", "a", free_addresses=9),
        Subnet("s3", "b", free_addresses=1),
        Subnet("s4", "c", free_addresses=0),
    )
    assert [one.id for one in both.candidates("a", ANY)] == ["s2", "s1"]
    both.exhaust("s2")
    assert [one.id for one in both.candidates("a", ANY)] == ["s1"]
    both.exhaust("s3")
    assert both.zones(ANY) == {"a"}


def test_refusals_of_the_same_call_have_the_same_message() -> None:
    """What is encoded in a message differs each time, so that each would count as another error."""
    shown = set()
    for encoded in ("x1Yz", "Qq_7-"):
        text = f"You may not. Encoded authorization failure message: {encoded}"
        answer = {"Error": {"Code": "UnauthorizedOperation", "Message": text}}
        shown.add(f"{translate('RunInstances', ClientError(answer, 'RunInstances'))}")
    (message,) = shown
    assert "UnauthorizedOperation: You may not; give the controllers credentials" in message


def test_f68_a_refresh_finds_new_subnets_and_survives_errors() -> None:
    answers: list[Sequence[Subnet] | ProviderError] = [
        [Subnet("s1", "a", free_addresses=1)],
        ProviderError("no"),
        [Subnet("s1", "a", free_addresses=1), Subnet("s2", "b", free_addresses=1)],
    ]

    def read() -> Sequence[Subnet]:
        answer = answers.pop(0)
        if isinstance(answer, ProviderError):
            raise answer
        return answer

    subnets, seen = SubnetTable(read), []
    for now in (0.0, 149.0, 150.0, 299.0, 300.0):
        subnets.refresh(now)
        seen.append(len(subnets.zones(ANY)))
    assert seen == [1, 1, 1, 1, 2]
    with pytest.raises(ProviderError, match="first"):
        SubnetTable(lambda: _raise(ProviderError("first"))).refresh(0.0)


def _raise(error: Exception) -> Sequence[Subnet]:
    raise error


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("m5.large", "0.096"),
        ("m5.24xlarge", "4.608"),
        ("c7g.medium", "0.03625"),
        ("t3.micro", "0.0104"),
        ("g5.4xlarge", "1.624"),
        ("m5.metal", None),
        ("x99.large", None),
        ("nonsense", None),
    ],
)
def test_known_prices_follow_the_size(name: str, price: str | None) -> None:
    assert known_price(name) == (None if price is None else Decimal(price))


def test_baselines_are_of_all_processors() -> None:
    assert [baseline_milli(name, 2) for name in ("t3.micro", "t3.xlarge", "t2.2xlarge")] == [
        *(200, 800, 340),
    ]


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        **more,
    }


def test_types_have_prices_zones_devices_and_room() -> None:
    gpus = {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 4, "Name": "T4"}]}
    described = [
        kind("t3.large", BurstablePerformanceSupported=True),
        kind("g4dn.12xlarge", GpuInfo=gpus, SupportedUsageClasses=["on-demand"]),
        kind("m5.metal"),
        kind("m5.large"),
    ]
    zones = {name: {"b", "a"} for name in ("t3.large", "g4dn.12xlarge", "m5.metal")}
    spot = {("t3.large", "a"): Decimal("0.03"), ("g4dn.12xlarge", "a"): Decimal(1)}
    found = instance_types(described, zones, spot, {"g4dn.12xlarge": Decimal("3.5")})
    assert [one.name for one in found] == ["g4dn.12xlarge", "t3.large"]
    gpu, burstable = found
    assert gpu.capacity["nvidia.com/gpu"] == "4"
    assert gpu.offerings == tuple(Offering(zone, price=Decimal("3.5")) for zone in "ab")
    assert (burstable.burstable, burstable.baseline_milli) == (True, 600)
    assert burstable.offerings == (
        Offering("a", price=Decimal("0.0832")),
        Offering("a", spot=True, price=Decimal("0.03")),
        Offering("b", price=Decimal("0.0832")),
    )
    assert burstable.capacity == {"cpu": "2", "memory": "8192Mi", "pods": "110"}
    assert burstable.room["memory"] == "7577Mi"
    assert burstable.labels["kubernetes.io/arch"] == "amd64"


def test_the_newest_spot_price_counts() -> None:
    def entry(price: str, at: int, zone: str = "a") -> Mapping[str, Any]:
        when = NOW + timedelta(hours=at)
        return {
            "InstanceType": "t",
            "AvailabilityZone": zone,
            "SpotPrice": price,
            "Timestamp": when,
        }

    history = [entry("0.1", 1), entry("0.2", 2), entry("0.3", 0), entry("x", 3), entry("0", 1, "b")]
    assert spot_prices(history) == {("t", "a"): Decimal("0.2")}


def test_f50_the_newest_image_is_used() -> None:
    images = [
        {"ImageId": "none"},
        {"ImageId": "odd", "CreationDate": "yesterday"},
        {"ImageId": "old", "CreationDate": "2025-01-01T00:00:00.000Z"},
        {"ImageId": "new", "CreationDate": "2025-02-01T00:00:00.000Z"},
    ]
    found = newest_image(images)
    assert found is not None
    assert found["ImageId"] == "new"
    assert newest_image(images[:2]) in images[:2]
    assert newest_image([]) is None


def test_images_are_looked_up_among_known_owners() -> None:
    assert image_query({"name": "n*"})["Owners"] == ["self"]
    assert image_query({})["Owners"] == ["099720109477"]
    query = image_query({"owner": "1", "tag:role": "node", "architecture": "arm64"})
    assert [(one["Name"], one["Values"]) for one in query["Filters"]] == [
        ("state", ["available"]),
        ("architecture", ["arm64"]),
        ("tag:role", ["node"]),
    ]
    assert "Owners" not in image_query({"id": "ami-1"})
    with pytest.raises(MisconfiguredError, match=r"^spec\.bootImage\.nam: unknown; use "):
        image_query({"nam": "x"})


def test_a_disk_is_no_smaller_than_its_image() -> None:
    image = {
        "RootDeviceName": "/dev/xvda",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8}},
            {"DeviceName": "/dev/xvdb", "VirtualName": "ephemeral0"},
        ],
    }
    config = read_config({"region": "eu-west-1"})
    for asked, size in ((5, 8), (20, 20)):
        (disk,) = root_disk(config, image, asked)
        assert (disk["DeviceName"], disk["Ebs"]["VolumeSize"]) == ("/dev/xvda", size)


def test_tokens_of_long_names_have_the_length_of_the_api() -> None:
    assert client_token("p-1") == "p-1"
    long = client_token("p" * 65)
    assert len(long) == 64
    assert long != client_token("p" * 66)


def event(kind: str, **detail: object) -> str:
    return json.dumps({"detail-type": kind, "detail": detail})


def test_notices_are_read_from_events() -> None:
    spot = event("EC2 Spot Instance Interruption Warning", **{"instance-id": "i-1"})
    assert [(n.instance_id, n.within_s, n.rebalance) for n in read_notice(spot, NOW)] == [
        ("i-1", 120.0, False)
    ]
    waited = json.dumps(
        {**json.loads(spot), "time": timestamps.rfc3339(NOW - timedelta(seconds=50))}
    )
    assert read_notice(waited, NOW)[0].within_s == 70.0
    risk = event("EC2 Instance Rebalance Recommendation", **{"instance-id": "i-1"})
    assert read_notice(risk, NOW)[0].rebalance
    health = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_REBOOT",
        "startTime": "Thu, 01 Jan 2026 01:00:00 GMT",
        "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "vol-1"}, "odd"],
    }
    assert read_notice(event("AWS Health Event", **health), NOW) == (
        Interruption("i-1", "maintenance: AWS_EC2_REBOOT", 3600.0),
    )
    assert read_notice(event("AWS Health Event", **{**health, "service": "RDS"}), NOW) == ()
    assert read_notice(event("Other"), NOW) == ()


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"detail": 1}', "nonsense"])
def test_what_is_no_event_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match=r"no event|Expecting value"):
        read_notice(body, NOW)


def refusal(code: str, message: str = "no.") -> ProviderError:
    return translate("Call", ClientError({"Error": {"Code": code, "Message": message}}, "Call"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("RequestLimitExceeded", ThrottledError),
        ("InvalidInstanceID.NotFound", InstanceGoneError),
        ("UnauthorizedOperation", MisconfiguredError),
        ("InvalidAMIID.NotFound", MisconfiguredError),
        ("InvalidParameterValue", MisconfiguredError),
        ("IncorrectInstanceState", ProviderError),
        ("InternalError", ProviderError),
        ("Unheard", ProviderError),
    ],
)
def test_codes_of_errors_are_classified(code: str, expected: type[ProviderError]) -> None:
    error = refusal(code)
    assert type(error) is expected
    assert str(error).startswith(f"ec2 Call: {code}: no; ")


@pytest.mark.parametrize(
    ("code", "message", "whole_type", "quota"),
    [
        ("InsufficientInstanceCapacity", "", False, False),
        ("InsufficientFreeAddressesInSubnet", "", False, False),
        ("VcpuLimitExceeded", "", True, True),
        ("MaxSpotInstanceCountExceeded", "", True, True),
        ("Unsupported", "not supported in your requested Availability Zone (a)", False, False),
        ("Unsupported", "not supported", True, False),
    ],
)
def test_shortages_name_what_they_are_about(
    code: str, message: str, whole_type: bool, quota: bool
) -> None:
    error = refusal(code, message)
    assert isinstance(error, CapacityError)
    assert (error.whole_type, error.quota) == (whole_type, quota)


def test_errors_without_an_answer_are_classified() -> None:
    assert type(translate("Call", NoCredentialsError())) is MisconfiguredError
    unknown = translate("Call", EndpointConnectionError(endpoint_url="http://h"))
    assert type(unknown) is ProviderError
    with pytest.raises(KeyError):
        translate("Call", KeyError("a bug"))


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ([], ""),
        ({}, ".region"),
        ({"region": "nowhere"}, ".region"),
        ({"region": "eu-west-1", "zone": "a"}, ".zone"),
        ({"region": "eu-west-1", "subnets": "s"}, ".subnets"),
        ({"region": "eu-west-1", "subnets": ["s"], "subnetTags": {"a": "b"}}, ".subnetTags"),
        ({"region": "eu-west-1", "subnetTags": {"a": 1}}, ".subnetTags.a"),
        ({"region": "eu-west-1", "addresses": "Some"}, ".addresses"),
        ({"region": "eu-west-1", "prices": {"m5.large": "much"}}, ".prices.m5.large"),
        ({"region": "eu-west-1", "prices": {"m5.large": "NaN"}}, ".prices.m5.large"),
        ({"region": "eu-west-1", "tags": {"grange.dev/machine": "x"}}, ".tags.grange.dev/machine"),
        ({"region": "eu-west-1", "interruptionQueue": "q"}, ".interruptionQueue"),
    ],
)
def test_a_wrong_config_of_ec2_names_its_field(config: object, path: str) -> None:
    with pytest.raises(MisconfiguredError) as error:
        read_config(config)
    assert str(error.value).startswith(f"spec.providerConfig{path}: ")
    assert "; " in str(error.value)
