"""NodePools and Machines: rules of the kinds and the table of phases."""

import pytest
from hypothesis import given, strategies as st

from grange.api import codec
from grange.api.kinds import MACHINE, NODEPOOL
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import PHASES, TRANSITIONS, MachinePhase, may_follow
from grange.api.meta import Document

P = MachinePhase


def pool(**spec: object) -> Document:
    return {"metadata": {"name": "a"}, "spec": {"provider": "local", **spec}}


def machine(phase: str = "", **spec: object) -> Document:
    status = {"phase": phase} if phase else {}
    wanted = {"pool": "a", "provider": "local", **spec}
    return {"metadata": {"name": "m"}, "spec": wanted, "status": status}


def faults(document: Document) -> list[str]:
    return [cause.field for cause in NODEPOOL.validate(document, None)]


_ALLOWED_FROM = {
    "Creating": {"Created", "Available", "Terminating", "Terminated"},
    "Created": {"Available", "Terminating", "Terminated"},
    "Available": {"Claimed", "Stopping", "Terminating", "Terminated"},
    "Claimed": {"Available", "Cleaning", "Terminating", "Terminated"},
    "Cleaning": {"Available", "Terminating", "Terminated"},
    "Stopping": {"Stopped", "Created", "Terminating", "Terminated"},
    "Stopped": {"Created", "Terminating", "Terminated"},
    "Terminating": {"Terminated"},
    "Terminated": set(),
}


@pytest.mark.parametrize("before", PHASES)
@pytest.mark.parametrize("after", PHASES)
def test_every_cell_of_the_table_of_phases(before: str, after: str) -> None:
    allowed = before == after or after in _ALLOWED_FROM[before]
    assert may_follow(before, after) is allowed
    found = MACHINE.validate(machine(after), machine(before))
    assert [cause.field for cause in found] == ([] if allowed else ["status.phase"])


def test_phase_of_another_release_counts_as_creating() -> None:
    document = {"metadata": {"name": "m"}, "status": {"phase": "Pending"}}
    assert codec.decode_view(codec.encode(document), Machine).phase is P.CREATING
    assert MACHINE.validate(machine("Available"), machine("Pending")) == []
    assert MACHINE.validate(machine("Pending"), machine("Created")) != []


def test_a_used_machine_is_revived_by_cleaning_alone() -> None:
    events = {event.value for (before, event), after in TRANSITIONS.items() if before is P.CLEANING}
    revived = [
        event.value
        for (before, event), after in TRANSITIONS.items()
        if before is P.CLEANING and after is P.AVAILABLE
    ]
    assert revived == ["cleaned"]
    assert "joined" not in events


def test_a_machine_that_ends_cannot_be_kept() -> None:
    found = MACHINE.validate(machine(terminate=False), machine(terminate=True))
    assert [cause.field for cause in found] == ["spec.terminate"]
    assert MACHINE.validate(machine(terminate=True), machine(terminate=False)) == []


def test_what_a_machine_was_ordered_as_does_not_change() -> None:
    found = MACHINE.validate(machine(instanceType="b"), machine(instanceType="a"))
    assert [cause.field for cause in found] == ["spec.instanceType"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"provider": "No Such"}, "spec.provider"),
        ({"weight": 0}, "spec.weight"),
        ({"maxBootPerIteration": 0}, "spec.maxBootPerIteration"),
        ({"limits": {"pricePerHour": "much"}}, "spec.limits.pricePerHour"),
        ({"limits": {"pricePerHour": "-1"}}, "spec.limits.pricePerHour"),
        ({"limits": {"pricePerHour": "NaN"}}, "spec.limits.pricePerHour"),
        (
            {"limits": {"machines": 1}, "standby": [{"instanceType": "a", "count": 2}]},
            "spec.limits.machines",
        ),
        ({"standby": [{"count": 1}]}, "spec.standby[0].instanceType"),
        ({"standby": [{"instanceType": "a", "count": -1}]}, "spec.standby[0].count"),
        (
            {"standby": [{"instanceType": "a", "schedule": "never", "durationSeconds": 1}]},
            "spec.standby[0].schedule",
        ),
        (
            {"standby": [{"instanceType": "a", "schedule": "@daily"}]},
            "spec.standby[0].durationSeconds",
        ),
        (
            {"standby": [{"instanceType": "a", "durationSeconds": 5}]},
            "spec.standby[0].durationSeconds",
        ),
        ({"volume": {"defaultSize": "big"}}, "spec.volume.defaultSize"),
        (
            {"timeouts": {"healthcheckPauseSeconds": 90, "healthySeconds": 90}},
            "spec.timeouts.healthcheckPauseSeconds",
        ),
        (
            {"timeouts": {"bootSecondsByType": {"a*": 0}}},
            "spec.timeouts.bootSecondsByType[a*]",
        ),
        ({"disruption": {"budgets": [{"nodes": "many"}]}}, "spec.disruption.budgets[0].nodes"),
        ({"disruption": {"minSavingsPercent": 101}}, "spec.disruption.minSavingsPercent"),
        ({"bootstrap": "UserData"}, "spec.userData"),
        ({"userData": "x" * 16_001}, "spec.userData"),
        ({"requirements": [{"key": "a", "operator": "In"}]}, "spec.requirements[0].values"),
        ({"template": {"taints": [{"key": "a"}]}}, "spec.template.taints[0].effect"),
    ],
)
def test_wrong_pools_are_refused_with_the_field(spec: Document, field: str) -> None:
    assert faults(pool(**spec)) == [field]


def test_the_provider_of_a_pool_does_not_change() -> None:
    found = NODEPOOL.validate(pool(provider="ec2"), pool())
    assert [cause.field for cause in found] == ["spec.provider"]


@given(price=st.text(max_size=40))
def test_any_price_is_valid_or_refused(price: str) -> None:
    assert faults(pool(limits={"pricePerHour": price})) in ([], ["spec.limits.pricePerHour"])
