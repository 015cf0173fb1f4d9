"""GangJob: its defaults, its rules, what may change, and its scale."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.unit.api.jobs import GANGJOB_FIELDS, complete, fields, gangjob, job, role, template

from grange.api import codec, index_ranges, scale, tables
from grange.api.kinds import GANGJOB
from grange.api.kinds.gangjob import GangJob

Document = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUSPENDED: Document = {"suspend": True}


def refused(roles: Document | None = None, **spec: Any) -> list[str]:
    return fields(GANGJOB, gangjob(roles=roles, **spec))


def test_complete_document_is_accepted_and_decoded() -> None:
    document = complete(GANGJOB, job(GANGJOB, **GANGJOB_FIELDS))
    assert fields(GANGJOB, job(GANGJOB, **GANGJOB_FIELDS)) == []
    view = codec.decode_view(codec.encode(document), GangJob)
    worker = view.spec.replica_specs["worker"]
    assert (worker.replicas, worker.min_replicas, worker.max_replicas) == (4, 2, 8)
    assert worker.depends_on[0].condition == "Ready"
    assert view.spec.run_policy.scheduling_policy.backend == "Volcano"
    assert view.spec.failure_policy is not None
    assert view.spec.failure_policy.rules[2].on_pod_conditions[0].status == "True"


def test_defaults_are_written_to_the_object() -> None:
    spec = complete(GANGJOB, gangjob(roles={"worker": {"template": template()}}))["spec"]
    assert spec["framework"] == "Generic"
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "suspend": False}
    worker = spec["replicaSpecs"]["worker"]
    assert (worker["replicas"], worker["restartPolicy"], worker["completes"]) == (
        1,
        "OnFailure",
        True,
    )


@pytest.mark.parametrize(
    ("roles", "field"),
    [
        ({}, "spec.replicaSpecs"),
        ({"Worker": role()}, "spec.replicaSpecs[Worker]"),
        ({"worker": role(-1)}, "spec.replicaSpecs[worker].replicas"),
        ({"worker": role(100_001)}, "spec.replicaSpecs[worker].replicas"),
        ({"a": role(60_000), "b": role(60_000)}, "spec.replicaSpecs"),
        ({"worker": role(0)}, "spec.replicaSpecs"),
        ({"worker": {"replicas": 1}}, "spec.replicaSpecs[worker].template"),
        ({"worker": {"template": {}}}, "spec.replicaSpecs[worker].template"),
        (
            {"worker": {"template": {"spec": {"containers": []}}}},
            "spec.replicaSpecs[worker].template.spec.containers",
        ),
        ({"worker": role(restartPolicy="Maybe")}, "spec.replicaSpecs[worker].restartPolicy"),
        ({"worker": role(2, minReplicas=3)}, "spec.replicaSpecs[worker].replicas"),
        ({"worker": role(2, minReplicas=0)}, "spec.replicaSpecs[worker].minReplicas"),
        ({"worker": role(2, maxReplicas=1)}, "spec.replicaSpecs[worker].replicas"),
        ({"worker": role(2, maxReplicas=0)}, "spec.replicaSpecs[worker].maxReplicas"),
        (
            {"worker": role(4, minReplicas=4, maxReplicas=3)},
            "spec.replicaSpecs[worker].maxReplicas",
        ),
        ({"worker": role(2, maxReplicas=100_001)}, "spec.replicaSpecs[worker].maxReplicas"),
        ({"worker": role(2, minAvailable=3)}, "spec.replicaSpecs[worker].minAvailable"),
        (
            {"worker": role(4, minReplicas=2, minAvailable=3)},
            "spec.replicaSpecs[worker].minAvailable",
        ),
        (
            {"worker": role(2, maxFailedIndexes=1)},
            "spec.replicaSpecs[worker].backoffLimitPerIndex",
        ),
        (
            {"worker": role(2, backoffLimitPerIndex=1, maxFailedIndexes=3)},
            "spec.replicaSpecs[worker].maxFailedIndexes",
        ),
        (
            {"worker": role(2, backoffLimitPerIndex=-1)},
            "spec.replicaSpecs[worker].backoffLimitPerIndex",
        ),
        ({"a": role(leader=True), "b": role(leader=True)}, "spec.replicaSpecs[b].leader"),
        ({"a": role(0, leader=True), "b": role()}, "spec.replicaSpecs[a].replicas"),
        (
            {"a": role(leader=True, completes=False), "b": role()},
            "spec.replicaSpecs[a].completes",
        ),
        ({"a": role(completes=False)}, "spec.replicaSpecs"),
    ],
)
def test_roles_that_could_never_run_are_refused(roles: Document, field: str) -> None:
    assert refused(roles) == [field]


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        ({"b": ["a"]}, []),
        ({"b": ["a"], "c": ["a", "b"]}, []),
        ({"b": ["x"]}, ["spec.replicaSpecs[b].dependsOn[0].role"]),
        ({"b": ["a", "a"]}, ["spec.replicaSpecs[b].dependsOn[1].role"]),
        ({"a": ["a"]}, ["spec.replicaSpecs[a].dependsOn"]),
        (
            {"a": ["b"], "b": ["a"]},
            ["spec.replicaSpecs[a].dependsOn", "spec.replicaSpecs[b].dependsOn"],
        ),
        (
            {"a": ["c"], "b": ["a"], "c": ["b"]},
            [f"spec.replicaSpecs[{name}].dependsOn" for name in "abc"],
        ),
    ],
)
def test_check_71_unknown_and_circular_dependencies_are_refused(
    needs: Document, found: list[str]
) -> None:
    roles = {
        name: role(dependsOn=[{"role": other} for other in needs.get(name, ())]) for name in "abc"
    }
    assert refused(roles) == found


def test_check_71_servers_never_become_complete() -> None:
    roles = {
        "server": role(completes=False),
        "worker": role(dependsOn=[{"role": "server", "condition": "Complete"}]),
    }
    assert refused(roles) == ["spec.replicaSpecs[worker].dependsOn[0].condition"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"cleanPodPolicy": "Some"}, "cleanPodPolicy"),
        ({"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished"),
        ({"activeDeadlineSeconds": -1}, "activeDeadlineSeconds"),
        ({"backoffLimit": -1}, "backoffLimit"),
        ({"managedBy": "mine"}, "managedBy"),
        ({"managedBy": ""}, "managedBy"),
        ({"managedBy": f"example.com/{'x' * 60}"}, "managedBy"),
        ({"schedulingPolicy": {"backend": "Mine"}}, "schedulingPolicy.backend"),
        ({"schedulingPolicy": {"minAvailable": 0}}, "schedulingPolicy.minAvailable"),
        ({"schedulingPolicy": {"minAvailable": 5}}, "schedulingPolicy.minAvailable"),
        ({"schedulingPolicy": {"minResources": {"cpu": "x"}}}, "schedulingPolicy.minResources.cpu"),
        ({"schedulingPolicy": {"queue": "A b"}}, "schedulingPolicy.queue"),
        ({"schedulingPolicy": {"priorityClass": "A b"}}, "schedulingPolicy.priorityClass"),
        (
            {"schedulingPolicy": {"scheduleTimeoutSeconds": 0}},
            "schedulingPolicy.scheduleTimeoutSeconds",
        ),
        ({"schedulingPolicy": {"topology": {"key": ""}}}, "schedulingPolicy.topology.key"),
        (
            {"schedulingPolicy": {"topology": {"key": "rack", "mode": "Sometimes"}}},
            "schedulingPolicy.topology.mode",
        ),
    ],
)
def test_run_policies_that_cannot_hold_are_refused(policy: Document, field: str) -> None:
    assert refused(runPolicy=policy) == [f"spec.runPolicy.{field}"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"operator": "Some"}, "operator"),
        ({"roles": ["chief"]}, "roles[0]"),
        ({"roles": ["worker", "worker"]}, "roles[1]"),
        ({"roles": ["server"]}, "roles[0]"),
        ({"indexes": "3-1"}, "indexes"),
        ({"indexes": "0-4"}, "indexes"),
        ({"indexes": "1,1"}, "indexes"),
        ({"indexes": "01"}, "indexes"),
        ({"count": 0}, "count"),
        ({"count": 5}, "count"),
        ({"indexes": "0-1", "count": 3}, "count"),
    ],
)
def test_success_policies_that_cannot_be_met_are_refused(policy: Document, field: str) -> None:
    roles = {"worker": role(4), "server": role(9, completes=False)}
    assert refused(roles, successPolicy=policy) == [f"spec.successPolicy.{field}"]


RULE: Document = {"action": "FailJob"}
CODES: Document = {"operator": "In", "values": [42]}
IN_PLACE: Document = {"action": "RestartPodInPlace", "roles": ["worker"], "onExitCodes": CODES}
SAME: Document = {"action": "RestartJob", "onReasons": ["Evicted"]}


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ([RULE], ["rules[0]"]),
        ([{**RULE, "onReasons": []}], ["rules[0]"]),
        ([{**RULE, "onReasons": [""]}], ["rules[0].onReasons[0]"]),
        ([{**SAME, "action": "Explode"}], ["rules[0].action"]),
        ([{**RULE, "roles": ["chief"]}], ["rules[0].roles[0]"]),
        ([SAME, {**SAME, "action": "FailJob"}], ["rules[1]"]),
        ([{**SAME, "name": "x"}, {**SAME, "roles": ["worker"], "name": "x"}], ["rules[1].name"]),
        ([{**RULE, "onExitCodes": {"values": []}}], ["rules[0].onExitCodes.values"]),
        ([{**RULE, "onExitCodes": {"values": [0]}}], ["rules[0].onExitCodes.values[0]"]),
        ([{**RULE, "onExitCodes": {"values": [3, 3]}}], ["rules[0].onExitCodes.values[1]"]),
        ([{**RULE, "onExitCodes": {"values": [256]}}], ["rules[0].onExitCodes.values[0]"]),
        (
            [{**RULE, "onExitCodes": {"values": [1], "operator": "Like"}}],
            ["rules[0].onExitCodes.operator"],
        ),
        (
            [{**RULE, "onExitCodes": {"values": [1], "containerName": "none"}}],
            ["rules[0].onExitCodes.containerName"],
        ),
        (
            [{**RULE, "roles": ["forever"], "onExitCodes": {"values": [1]}}],
            ["rules[0].onExitCodes"],
        ),
        ([{**RULE, "onPodConditions": [{"type": ""}]}], ["rules[0].onPodConditions[0].type"]),
        (
            [{**RULE, "onPodConditions": [{"type": "A", "status": "Yes"}]}],
            ["rules[0].onPodConditions[0].status"],
        ),
        (
            [{"action": "FailIndex", "roles": ["worker"]}],
            ["spec.replicaSpecs[worker].backoffLimitPerIndex"],
        ),
        ([{**SAME, "onReasons": [f"R{number}"]} for number in range(21)], ["rules"]),
        ([{**SAME, "action": "RestartPodInPlace"}], ["rules[0].onExitCodes"]),
        ([{**SAME, **IN_PLACE}], ["rules[0].onReasons"]),
        ([{**IN_PLACE, "onPodConditions": [{"type": "A"}]}], ["rules[0].onPodConditions"]),
        ([SAME, IN_PLACE], ["rules[1]"]),
        ([{**RULE, "roles": ["worker"]}, IN_PLACE], ["rules[1]"]),
        ([{**RULE, "onPodConditions": [{"type": "A"}]}, IN_PLACE], ["rules[1]"]),
        ([{**IN_PLACE, "roles": ["forever"]}], ["rules[0].onExitCodes"]),
        ([{**IN_PLACE, "roles": ["own"]}], ["spec.replicaSpecs[own].template"]),
    ],
)
def test_rules_that_cannot_match_are_refused(rules: list[Document], found: list[str]) -> None:
    roles = {"worker": role(4), "forever": role(restartPolicy="Always"), "own": role()}
    own = {
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": CODES}],
    }
    roles["own"]["template"]["spec"]["containers"][0] |= own
    expected = [at if at.startswith("spec.") else f"spec.failurePolicy.{at}" for at in found]
    assert refused(roles, failurePolicy={"rules": rules}) == expected


@pytest.mark.parametrize(
    "rules",
    [
        [IN_PLACE],
        [IN_PLACE, SAME],
        [{**RULE, "onExitCodes": {"values": [1]}}, IN_PLACE],
        [{**SAME, "roles": ["server"]}, IN_PLACE],
        [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, IN_PLACE],
    ],
)
def test_rules_that_a_node_can_carry_out_are_accepted(rules: list[Document]) -> None:
    assert refused({"worker": role(4), "server": role()}, failurePolicy={"rules": rules}) == []


def test_failure_policy_takes_only_known_values() -> None:
    assert refused(failurePolicy={"maxRestarts": -1}) == ["spec.failurePolicy.maxRestarts"]
    wrong = {"restartStrategy": "Explode"}
    assert refused(failurePolicy=wrong) == ["spec.failurePolicy.restartStrategy"]


@pytest.mark.parametrize(
    ("name", "roles", "ok"),
    [
        ("a" * 54, {"worker": role(10)}, True),
        ("a" * 55, {"worker": role(10)}, False),
        ("a" * 54, {"worker": role(11)}, False),
        ("a" * 54, {"worker": role(10, maxReplicas=11)}, False),
        ("a" * 63, {"worker": role(1)}, False),
        ("1st", {"worker": role(1)}, False),
        ("Train", {"worker": role(1)}, False),
        ("a.b", {"worker": role(1)}, False),
    ],
)
def test_check_73_names_leave_room_for_the_largest_index(
    name: str, roles: Document, ok: bool
) -> None:
    found = fields(GANGJOB, gangjob(name, roles))
    assert set(found) == (set() if ok else {"metadata.name"})


def test_unknown_fields_are_named_with_their_path() -> None:
    document = gangjob(roles={"worker": role(2, replica=3)})
    assert fields(GANGJOB, document) == ["spec.replicaSpecs[worker].replica"]


# --- updates -----------------------------------------------------------------------------------------


def changed(document: Document, path: str, value: Any) -> Document:
    document = copy.deepcopy(document)
    *way, last = path.split("/")
    inner = document["spec"]
    for part in way:
        inner = inner.setdefault(part, {})
    inner[last] = value
    return document


def stored(**spec: Any) -> Document:
    roles = {"worker": role(4), "elastic": role(4, minReplicas=2, maxReplicas=8)}
    return complete(GANGJOB, gangjob(roles=roles, **spec))


FINISHED = {"conditions": [{"type": "Failed", "status": "True"}]}
ACTIVE = {"replicaStatuses": {"worker": {"active": 1}}}
SETTINGS: list[tuple[str, Any, bool, bool, bool]] = [
    # path, value, may change while it runs, while it is suspended, when it is finished
    ("runPolicy/suspend", True, True, True, False),
    ("runPolicy/ttlSecondsAfterFinished", 5, True, True, True),
    ("runPolicy/activeDeadlineSeconds", 5, True, True, False),
    ("runPolicy/backoffLimit", 5, False, True, False),
    ("runPolicy/managedBy", "example.com/other", False, False, False),
    ("runPolicy/schedulingPolicy", {"queue": "a"}, False, True, False),
    ("framework", "MPI", False, False, False),
    ("successPolicy", {"operator": "Any"}, False, False, False),
    ("failurePolicy", {"maxRestarts": 1}, False, False, False),
    ("replicaSpecs/elastic/replicas", 6, True, True, False),
    ("replicaSpecs/worker/replicas", 6, False, True, False),
    ("replicaSpecs/worker/restartPolicy", "Never", False, False, False),
    ("replicaSpecs/worker/template", template("other"), False, True, False),
    ("replicaSpecs/extra", role(), False, False, False),
]


@pytest.mark.parametrize(("path", "value", "running", "suspended", "finished"), SETTINGS)
def test_check_72_what_may_change_depends_on_the_state(
    path: str,
    value: Any,
    running: bool,
    suspended: bool,
    finished: bool,
) -> None:
    old = stored()
    assert (fields(GANGJOB, changed(old, path, value), old) == []) is running
    old = {**stored(), "status": FINISHED}
    assert (fields(GANGJOB, changed(old, path, value), old) == []) is finished
    old = stored(runPolicy=SUSPENDED)
    assert (fields(GANGJOB, changed(old, path, value), old) == []) is suspended
    old = {**stored(runPolicy=SUSPENDED), "status": ACTIVE}
    expected = running or path == "runPolicy/suspend"
    assert (fields(GANGJOB, changed(old, path, value), old) == []) is expected


def test_an_unchanged_spec_of_a_job_is_not_judged_again() -> None:
    """A job that was accepted by fewer rules can still report its status."""
    old = complete(GANGJOB, gangjob(roles={"worker": role(-1)}))
    new = {**copy.deepcopy(old), "status": FINISHED}
    assert fields(GANGJOB, new, old) == []
    new["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 5
    assert fields(GANGJOB, new, old) == ["spec.replicaSpecs[worker].replicas"]


def test_check_72_resuming_and_changing_a_template_is_one_update() -> None:
    old = stored(runPolicy=SUSPENDED)
    new = changed(changed(old, "runPolicy/suspend", False), "replicaSpecs/worker/replicas", 2)
    assert fields(GANGJOB, new, old) == []


@pytest.mark.parametrize("replicas", [0, 1, 9])
def test_check_72_elastic_roles_stay_within_their_bounds(replicas: int) -> None:
    old = stored()
    found = fields(GANGJOB, changed(old, "replicaSpecs/elastic/replicas", replicas), old)
    assert found != []
    assert all(field.startswith("spec.replicaSpecs[elastic].") for field in found)


# --- scale and columns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "chosen"),
    [
        ({"a": role(), "b": role(3, minReplicas=1)}, "b"),
        ({"a": role(), "worker": role(3)}, "worker"),
        ({"a": role(3), "b": role()}, "a"),
        ({"worker": role(minReplicas=1), "b": role(3, maxReplicas=4)}, "worker"),
    ],
)
def test_scale_is_of_the_elastic_role(roles: Document, chosen: str) -> None:
    document = complete(GANGJOB, gangjob(roles=roles))
    document["status"] = {"replicaStatuses": {chosen: {"active": 2, "selector": "a=b"}}}
    scaling = GANGJOB.scale
    assert scaling is not None
    shown = scale.shown(scaling, document)
    assert shown["spec"] == {"replicas": roles[chosen]["replicas"]}
    assert shown["status"] == {"replicas": 2, "selector": "a=b"}
    new = scale.scaled(scaling, document, 7)
    assert new["spec"]["replicaSpecs"][chosen]["replicas"] == 7
    assert document["spec"]["replicaSpecs"][chosen]["replicas"] == roles[chosen]["replicas"]


def test_columns_show_phase_pods_and_restarts() -> None:
    document = gangjob(roles={"a": role(1), "b": role(3)})
    document["status"] = {
        "phase": "Running",
        "restarts": 2,
        "queue": "team-a",
        "replicaStatuses": {"a": {"ready": 1}, "b": {"ready": 2}},
    }
    [row] = tables.rows(GANGJOB, [document], now=0.0, include="None")
    named = dict(zip([c.name for c in tables.columns_of(GANGJOB)], row["cells"], strict=True))
    assert named == {
        "Name": "train",
        "Phase": "Running",
        "Ready": "3/4",
        "Restarts": 2,
        "Age": "<unknown>",
        "Queue": "team-a",
        "Framework": "Generic",
        "Message": "<none>",
    }


def test_template_restart_policy_has_no_effect_and_warns() -> None:
    roles = {"worker": {**role(), "template": template(restartPolicy="Always")}}
    document = complete(GANGJOB, gangjob(roles=roles))
    warning = next(iter(GANGJOB.review(document, None, NOW)))
    assert warning.startswith("spec.replicaSpecs[worker].template.spec.restartPolicy: no effect")
    assert "SettedPodTemplateRestartPolicy" in warning
    assert list(GANGJOB.review(document, document, NOW)) == []


@given(st.sets(st.integers(0, 99_999), max_size=50))
def test_index_ranges_are_read_back(indexes: set[int]) -> None:
    assert index_ranges.parse(index_ranges.written(indexes)) == indexes
