"""The cheapest type that holds a pod: picks that kip's tests expect of EC2's prices of 2020."""

from decimal import Decimal

import pytest

from grange.api.kinds.nodepool import NodePoolSpec
from grange.api.kinds.pod import SelectorRequirement
from grange.api.pod_requests import Resources
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.scaling.instance_selector import InstanceSelector, MachineChoice

GIB = 2**30


def _type(
    name: str, cpu: int, memory: str, price: str, *, baseline: int = 0, gpus: int = 0
) -> InstanceType:
    capacity = {"cpu": f"{cpu}", "memory": memory, **({"gpu.example/x": f"{gpus}"} if gpus else {})}
    return InstanceType(
        name,
        capacity,
        burstable=bool(baseline),
        baseline_milli=baseline,
        offerings=(Offering(price=Decimal(price)),),
    )


# On demand, us-east-1, 2020; https://aws.amazon.com/ec2/pricing/on-demand/
TYPES = [
    _type("t3.nano", 2, "512Mi", "0.0052", baseline=100),
    _type("t3.micro", 2, "1Gi", "0.0104", baseline=200),
    _type("t3.small", 2, "2Gi", "0.0208", baseline=400),
    _type("t3.medium", 2, "4Gi", "0.0416", baseline=400),
    _type("t3.large", 2, "8Gi", "0.0832", baseline=600),
    _type("t3.xlarge", 4, "16Gi", "0.1664", baseline=1600),
    _type("c5.large", 2, "4Gi", "0.085"),
    _type("m5.large", 2, "8Gi", "0.096"),
    _type("c5.xlarge", 4, "8Gi", "0.17"),
    _type("p2.xlarge", 4, "61Gi", "0.9", gpus=1),
    _type("c5.9xlarge", 36, "72Gi", "1.53"),
    _type("m5.12xlarge", 48, "192Gi", "2.304"),
]


def first(
    memory_gib: float,
    cpu: float,
    gpus: int = 0,
    *,
    dedicated_cpu: bool = False,
    sustained_cpu: bool | None = None,
) -> MachineChoice | None:
    scalars = {"gpu.example/x": gpus} if gpus else {}
    request = Resources(int(cpu * 1000), int(memory_gib * GIB), scalars=scalars)
    selector = InstanceSelector(TYPES, NodePoolSpec())
    choices = selector.choices(request, dedicated_cpu=dedicated_cpu, sustained_cpu=sustained_cpu)
    return choices[0] if choices else None


@pytest.mark.parametrize(
    ("memory", "cpu", "gpus", "expected", "sustained"),
    [
        (0.5, 0.5, 0, "t3.nano", True),
        (2, 1, 0, "t3.small", True),
        (4, 1, 0, "t3.medium", True),
        (1.5, 1.5, 0, "t3.small", True),
        (0, 0, 1, "p2.xlarge", False),
        (180, 48, 0, "m5.12xlarge", False),
        (15, 32, 0, "c5.9xlarge", False),
    ],
)
def test_expected_picks(
    memory: float, cpu: float, gpus: int, expected: str, sustained: bool
) -> None:
    choice = first(memory, cpu, gpus)
    assert choice is not None
    assert (choice.instance_type.name, choice.sustained) == (expected, sustained)


@pytest.mark.parametrize("kind", [{"sustained_cpu": False}, {"dedicated_cpu": True}])
def test_shared_processors_can_be_refused(kind: dict[str, bool]) -> None:
    choice = first(1, 1, **kind)
    assert choice is not None
    assert choice.instance_type.name == "c5.large"


def test_dedicated_processors_are_counted_too() -> None:
    choice = first(1, 30, dedicated_cpu=True)
    assert choice is not None
    assert choice.instance_type.name == "c5.9xlarge"


@pytest.mark.parametrize(("memory", "cpu"), [(1, 1000), (100_000, 1)])
def test_what_nothing_holds_has_no_choice(memory: float, cpu: float) -> None:
    assert first(memory, cpu) is None


def test_pools_restrict_types_by_name_and_by_label() -> None:
    request = Resources(1000, GIB)
    globs = InstanceSelector(TYPES, NodePoolSpec(instance_types=("m5.*",)))
    assert [c.instance_type.name for c in globs.choices(request)] == ["m5.large", "m5.12xlarge"]
    requirement = SelectorRequirement(
        "node.kubernetes.io/instance-type", "NotIn", ("t3.small", "t3.micro")
    )
    rest = InstanceSelector(TYPES, NodePoolSpec(requirements=(requirement,)))
    assert {"t3.small", "t3.micro"}.isdisjoint(c.instance_type.name for c in rest.choices(request))


def test_a_named_type_is_taken_as_it_is() -> None:
    selector = InstanceSelector(TYPES, NodePoolSpec())
    (choice,) = selector.choices(Resources(99_000, 0), named="t3.nano")
    assert (choice.instance_type.name, choice.sustained) == ("t3.nano", False)
    assert selector.choices(Resources(), named="x9.none") == []
