"""The object of a job's gang for each backend: checks 62 and 63, and its state."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.unit.gangjob.wired_jobs import LABELS, context, model, role, template

from grange.api import quantity
from grange.api.kinds import PODDISRUPTIONBUDGET, PODGROUP
from grange.api.meta import Document, Resource
from grange.controllers.gangjob.gang_backends import (
    gang_document,
    gang_of,
    gang_patch,
    gang_state,
    min_resources,
    quorum,
)
from grange.controllers.gangjob.model import (
    GangBackend,
    GangState,
    JobModel,
    RoleDependency,
    SchedulingPolicy,
)

WITH_OBJECTS = [item for item in GangBackend if item is not GangBackend.NONE]


def job(*roles: Any, backend: GangBackend = GangBackend.GRANGE, **policy: Any) -> JobModel:
    return model(*(roles or (role("worker", 4),)), scheduling=SchedulingPolicy(backend, **policy))


def document(given: JobModel, **priorities: int) -> Document:
    found = gang_document(given, LABELS, context(given).owner, priorities)
    assert found is not None
    return found


def stored(given: JobModel, **status: Any) -> Resource:
    gang = gang_of(given)
    assert gang is not None
    found: Resource = msgspec.convert({**document(given), "status": status}, gang.kind.view)
    return found


def asking(**amounts: str) -> Document:
    return template(resources={"requests": amounts})


def test_quorum_is_of_the_job_or_of_its_roles() -> None:
    roles = role("a", 4), role("b", 5, min_replicas=2), role("c", 6, min_available=1)
    assert quorum(job(*roles)) == 7
    assert quorum(job(*roles, min_available=3)) == 3


def test_role_that_waits_for_another_is_not_in_the_quorum() -> None:
    """Else the one role waits for nodes until the other's pods exist, and these for the one."""
    waits = (RoleDependency("worker"),)
    roles = role("worker", 4, template=asking(cpu="1")), role("launcher", depends_on=waits)
    assert quorum(job(*roles)) == 4
    assert quorum(job(*roles, min_available=5)) == 4
    assert min_resources(job(*roles)) == {"cpu": "4"}


def test_check_62_budget_of_one_worker() -> None:
    found = document(job(role("worker"), backend=GangBackend.DISRUPTION_BUDGET))
    assert found["metadata"]["name"] == "train"
    assert found["spec"] == {
        "minAvailable": 1,
        "selector": {"matchLabels": {"grange.dev/job-name": "train"}},
    }
    assert found["metadata"]["ownerReferences"][0]["controller"] is True
    assert PODDISRUPTIONBUDGET.validate(found, None) == []


def test_group_of_grange_has_queue_and_topology() -> None:
    policy: dict[str, Any] = {
        "queue": "team-a",
        "priority_class": "high",
        "timeout_s": 60,
        "topology_key": "topology.kubernetes.io/zone",
        "topology_required": False,
        "min_resources": {"cpu": 8},
    }
    found = document(job(**policy))
    assert found["spec"] == {
        "minMember": 4,
        "minResources": {"cpu": 8},
        "scheduleTimeoutSeconds": 60,
        "queue": "team-a",
        "admission": "Gated",
        "priorityClassName": "high",
        "topology": {"key": "topology.kubernetes.io/zone", "mode": "Preferred"},
    }
    assert PODGROUP.validate(found, None) == []
    assert (
        document(model(role("worker", 4), uid="again"))["metadata"]["name"]
        != (found["metadata"]["name"])
    )


def test_min_resources_are_of_the_most_important_roles() -> None:
    high, low = asking(cpu="1500m", memory="1Gi"), asking(cpu="1")
    high["spec"]["priorityClassName"] = "high"
    low["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "64"}}}]
    limited = template(resources={"limits": {"nvidia.com/gpu": 2}})
    roles = role("low", 3, template=low), role("high", 2, template=high)
    backend = GangBackend.VOLCANO
    assert min_resources(job(*roles, backend=backend, min_available=3), {"high": 10}) == {
        "cpu": "4",
        "memory": "2Gi",
    }
    assert min_resources(job(*roles, backend=backend, min_available=3)) == {"cpu": "3"}
    assert min_resources(job(role("w", 2, template=limited))) == {"nvidia.com/gpu": "4"}
    assert min_resources(job(*roles, min_resources={"cpu": 1})) == {"cpu": 1}


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=4),
    milli=st.integers(1, 64_000),
    needed=st.integers(0, 250),
)
def test_min_resources_add_up(counts: list[int], milli: int, needed: int) -> None:
    roles = [
        role(f"r{at}", count, template=asking(cpu=f"{milli}m")) for at, count in enumerate(counts)
    ]
    found = min_resources(job(*roles, min_available=needed))
    expected = min(needed, sum(counts)) * milli
    assert quantity.milli(found.get("cpu", 0)) == expected


def test_volcano_has_parts_and_a_queue() -> None:
    roles = role("Worker", 4, min_available=2, template=asking(cpu="1")), role("PS", 2)
    found = document(job(*roles, backend=GangBackend.VOLCANO))
    assert found["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert found["spec"] == {
        "minMember": 4,
        "minTaskMember": {"worker": 2, "ps": 2},
        "minResources": {"cpu": "4"},
        "queue": "default",
    }


def test_volcano_needs_part_of_each_role_of_elastic_jobs() -> None:
    """Four workers are no quorum of a job that needs its server."""
    roles = role("PS", 1), role("Worker", 4, min_replicas=3)
    spec = document(job(*roles, backend=GangBackend.VOLCANO))["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (4, {"ps": 1, "worker": 3})
    rigid = document(job(role("PS", 1), role("Worker", 4), backend=GangBackend.VOLCANO))["spec"]
    assert (rigid["minMember"], "minTaskMember" in rigid) == (5, False)


@pytest.mark.parametrize(
    ("phase", "admitted", "scheduled"),
    [
        ("", False, False),
        ("Pending", False, False),
        ("Inqueue", True, False),
        ("Unknown", True, False),
        ("Running", True, True),
        ("Completed", True, True),
    ],
)
def test_check_63_volcano_admits_by_phase(phase: str, admitted: bool, scheduled: bool) -> None:
    given = job(backend=GangBackend.VOLCANO)
    found = gang_state(given, stored(given, phase=phase))
    assert (found.admitted, found.scheduled, found.exists) == (admitted, scheduled, True)


def test_check_63_no_pods_before_the_group_is_there() -> None:
    assert not gang_state(job(backend=GangBackend.VOLCANO), None).admitted
    for backend in (GangBackend.GRANGE, GangBackend.SCHEDULER_PLUGINS, GangBackend.NONE):
        assert gang_state(job(backend=backend), None).admitted


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Scheduled", "Running", "Finished"])
def test_grange_group_gives_its_reason(phase: str) -> None:
    reason = {"type": "Scheduled", "status": "False", "reason": "OverQuota", "message": "4 of 8"}
    given = job()
    found = gang_state(given, stored(given, phase=phase, conditions=[reason]))
    assert found == GangState(
        exists=True,
        name=stored(given).metadata.name,
        admitted=True,
        scheduled=phase in {"Scheduled", "Running", "Finished"},
        reason="OverQuota",
        message="4 of 8",
    )


def test_job_of_a_queue_has_no_pods_before_its_gang_is_admitted() -> None:
    given = job(queue="a")
    assert not gang_state(given, None).admitted
    assert document(given)["spec"]["admission"] == "Gated"
    assert gang_state(given, stored(given)).reason == ""
    assert not gang_state(given, stored(given)).admitted
    no = {"type": "Admitted", "status": "False", "reason": "OverQuota", "message": "4 of 8"}
    placed = {"type": "Scheduled", "status": "False", "reason": "NotEnoughMembers"}
    found = gang_state(given, stored(given, conditions=[placed, no]))
    assert (found.admitted, found.reason, found.message) == (False, "OverQuota", "4 of 8")
    yes = {"type": "Admitted", "status": "True", "reason": "Admitted", "message": ""}
    found = gang_state(given, stored(given, conditions=[yes, placed], used={"cpu": "4"}))
    assert (found.admitted, found.reason) == (True, "NotEnoughMembers")
    assert found.used == {"cpu": "4"}
    elsewhere = replace(given.roles[0], template={"spec": {"schedulerName": "other"}})
    assert "admission" not in document(replace(given, roles=(elsewhere,)))["spec"]
    assert "admission" not in document(job())["spec"]


def test_gated_group_states_what_its_quorum_requests() -> None:
    worker = role("worker", 4, template=asking(cpu="500m"))
    assert document(job(worker, queue="a"))["spec"]["minResources"] == {"cpu": "2"}
    assert "minResources" not in document(job(worker))["spec"]


def test_group_of_an_elastic_job_has_part_of_each_role() -> None:
    server = role("PS", 1, template=asking(cpu="4"))
    worker = role("Worker", 8, min_replicas=3, template=asking(cpu="1"))
    label = LABELS.role
    parts = [
        {"matchLabels": {label: "ps"}, "minMember": 1},
        {"matchLabels": {label: "worker"}, "minMember": 3},
    ]
    spec = document(job(server, worker, queue="a"))["spec"]
    assert (spec["minMember"], spec["minParts"]) == (4, parts)
    assert spec["minResources"] == {"cpu": "7"}
    assert "minParts" not in document(job(server, role("Worker", 8)))["spec"]
    fewer = replace(worker, min_replicas=2)
    assert gang_patch(job(server, fewer), LABELS, stored(job(server, worker))) == {
        "spec": {"minMember": 3, "minParts": [parts[0], {**parts[1], "minMember": 2}]}
    }
    assert gang_patch(job(server, worker), LABELS, stored(job(server, worker))) is None


def test_budget_is_met_when_enough_are_healthy() -> None:
    given = job(backend=GangBackend.DISRUPTION_BUDGET)
    counts = [(0, 0, False), (4, 3, False), (4, 4, True)]
    for desired, healthy, met in counts:
        found = gang_state(given, stored(given, desiredHealthy=desired, currentHealthy=healthy))
        assert found.scheduled is met


def test_object_of_another_owner_is_not_ours() -> None:
    """A budget of the job's name may be a user's, or that of a former job."""
    given = job(backend=GangBackend.VOLCANO)
    ours = stored(given, phase="Running")
    renamed = msgspec.structs.replace(ours.metadata.owner_references[0], uid="other")
    for change in (
        {"owner_references": (renamed,)},
        {"deletion_timestamp": "2026-01-01T00:00:00Z"},
    ):
        meta = msgspec.structs.replace(ours.metadata, **change)
        found = gang_state(given, msgspec.structs.replace(ours, metadata=meta))
        assert not found.exists
        assert not found.admitted


@pytest.mark.parametrize("backend", WITH_OBJECTS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_stored_object_needs_no_patch(backend: GangBackend, replicas: int) -> None:
    """What is left out because it is a default is no difference."""
    worker = role("worker", replicas)
    given = job(worker, backend=backend, topology_key="zone", min_resources={"cpu": 1})
    assert gang_patch(given, LABELS, stored(given)) is None
    spelled = job(worker, backend=backend, topology_key="zone", min_resources={"cpu": "1000m"})
    assert gang_patch(spelled, LABELS, stored(given)) is None


@pytest.mark.parametrize("backend", WITH_OBJECTS)
def test_check_63_patch_follows_the_quorum_not_the_queue(backend: GangBackend) -> None:
    before = job(role("worker", 4), backend=backend, queue="a")
    after = job(role("worker", 6), backend=backend, queue="b", priority_class="high")
    field = "minAvailable" if backend is GangBackend.DISRUPTION_BUDGET else "minMember"
    assert gang_patch(after, LABELS, stored(before)) == {"spec": {field: 6}}


def test_patch_removes_what_is_no_longer_wanted() -> None:
    before = job(timeout_s=60, topology_key="zone")
    assert gang_patch(job(), LABELS, stored(before)) == {
        "spec": {"scheduleTimeoutSeconds": None, "topology": None}
    }
    alone = job(backend=GangBackend.NONE)
    assert gang_patch(alone, LABELS, stored(before)) is None
