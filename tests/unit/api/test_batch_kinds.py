"""Job and CronJob of batch/v1: defaults, rules, what may change, and columns as kubectl has them."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.api.jobs import complete, faults, fields, job, template

from grange.api import codec, crds, schema, tables, timestamps
from grange.api.kinds import BUILT_IN, CRONJOB, JOB

Document = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = template(restartPolicy="Never")
UID = "0c6f0d0c-5a0b-4d6a-9b43-0d0c5a0b4d6a"
UID_LABEL = "batch.kubernetes.io/controller-uid"
INDEXED: Document = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}


def made(name: str = "pi", **spec: Any) -> Document:
    document = job(JOB, name, **{"template": copy.deepcopy(NEVER), **spec})
    document["metadata"]["uid"] = UID
    return document


def cronjob(name: str = "report", **spec: Any) -> Document:
    wanted = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": NEVER}}, **spec}
    return job(CRONJOB, name, **wanted)


def refused(**spec: Any) -> list[str]:
    return fields(JOB, made(**spec))


def test_jobs_get_the_defaults_of_kubernetes() -> None:
    document = complete(JOB, made())
    spec = document["spec"]
    template = spec.pop("template")
    labels = {
        UID_LABEL: UID,
        "batch.kubernetes.io/job-name": "pi",
        "controller-uid": UID,
        "job-name": "pi",
    }
    assert template["metadata"]["labels"] == labels
    assert spec == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {UID_LABEL: UID}},
    }


def test_defaults_depend_on_what_is_given() -> None:
    assert "completions" not in complete(JOB, made(parallelism=2))["spec"]
    assert complete(JOB, made(completions=2))["spec"]["parallelism"] == 1
    per_index = complete(JOB, made(**INDEXED, backoffLimitPerIndex=1))["spec"]
    assert per_index["backoffLimit"] == 2**31 - 1
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    policy = complete(JOB, made(podFailurePolicy={"rules": [rule]}))["spec"]
    assert policy["podReplacementPolicy"] == "Failed"
    assert policy["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


def test_jobs_take_over_the_labels_of_their_template() -> None:
    labelled = {**NEVER, "metadata": {"labels": {"app": "pi"}}}
    document = complete(JOB, made(template=labelled))
    assert document["metadata"]["labels"] == {"app": "pi"}
    assert document["spec"]["template"]["metadata"]["labels"]["app"] == "pi"


def test_job_defaults_are_idempotent_and_valid() -> None:
    document = complete(JOB, made(**INDEXED))
    again = copy.deepcopy(document)
    schema.apply_defaults(again, JOB)
    assert again == document
    assert faults(JOB, document) == []
    assert faults(JOB, document, document) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": -1}, "parallelism"),
        ({"completions": -1}, "completions"),
        ({"completions": 100_001}, "completions"),
        ({"parallelism": 100_001}, "parallelism"),
        ({"backoffLimit": -1}, "backoffLimit"),
        ({"activeDeadlineSeconds": -1}, "activeDeadlineSeconds"),
        ({"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished"),
        ({"completionMode": "Other"}, "completionMode"),
        ({"completionMode": "Indexed", "parallelism": 1}, "completions"),
        ({"backoffLimitPerIndex": 1}, "backoffLimitPerIndex"),
        ({**INDEXED, "maxFailedIndexes": 1}, "backoffLimitPerIndex"),
        ({**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5}, "maxFailedIndexes"),
        ({"podReplacementPolicy": "Never"}, "podReplacementPolicy"),
        ({"managedBy": "mine"}, "managedBy"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "selector"),
        ({"manualSelector": True}, "selector"),
        (
            {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
            "template.metadata.labels",
        ),
        ({"template": {}}, "template"),
        ({"template": template()}, "template.spec.restartPolicy"),
        ({"template": template(restartPolicy="Always")}, "template.spec.restartPolicy"),
        ({"template": {"spec": {"containers": []}}}, "template.spec.containers"),
        ({"completion": 1}, "completion"),
    ],
)
def test_jobs_that_cannot_run_are_refused(spec: Document, field: str) -> None:
    assert f"spec.{field}" in refused(**spec)


CODES: Document = {"operator": "In", "values": [42]}


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"action": "FailJob"}, ""),
        ({"action": "Explode", "onExitCodes": CODES}, ".action"),
        ({"action": "FailIndex", "onExitCodes": CODES}, ".action"),
        (
            {"action": "Count", "onExitCodes": CODES, "onPodConditions": [{"type": "A"}]},
            "",
        ),
        ({"action": "Count", "onExitCodes": {**CODES, "operator": "Is"}}, ".onExitCodes.operator"),
        ({"action": "Count", "onExitCodes": {**CODES, "values": []}}, ".onExitCodes.values"),
        ({"action": "Count", "onExitCodes": {**CODES, "values": [3, 1]}}, ".onExitCodes.values"),
        ({"action": "Count", "onExitCodes": {**CODES, "values": [0]}}, ".onExitCodes.values[0]"),
        (
            {"action": "Count", "onExitCodes": {**CODES, "containerName": "none"}},
            ".onExitCodes.containerName",
        ),
        ({"action": "Count", "onPodConditions": [{"type": ""}]}, ".onPodConditions[0].type"),
        (
            {"action": "Count", "onPodConditions": [{"type": "A", "status": "x"}]},
            ".onPodConditions[0].status",
        ),
    ],
)
def test_failure_rules_that_cannot_apply_are_refused(rule: Document, field: str) -> None:
    found = refused(podFailurePolicy={"rules": [rule]})
    assert found == [f"spec.podFailurePolicy.rules[0]{field}"]


def test_failure_policy_needs_pods_that_end() -> None:
    policy = {"rules": [{"action": "Ignore", "onExitCodes": CODES}]}
    on_failure = template(restartPolicy="OnFailure")
    assert refused(podFailurePolicy=policy, template=on_failure) == [
        "spec.template.spec.restartPolicy"
    ]
    late = refused(podFailurePolicy=policy, podReplacementPolicy="TerminatingOrFailed")
    assert late == ["spec.podReplacementPolicy"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"rules": []}, ".rules"),
        ({"rules": [{}]}, ".rules[0]"),
        ({"rules": [{"succeededIndexes": "4"}]}, ".rules[0].succeededIndexes"),
        ({"rules": [{"succeededIndexes": "a"}]}, ".rules[0].succeededIndexes"),
        ({"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}, ".rules[0].succeededCount"),
        ({"rules": [{"succeededCount": 5}]}, ".rules[0].succeededCount"),
    ],
)
def test_success_policies_that_cannot_be_met(policy: Document, field: str) -> None:
    assert refused(**INDEXED, successPolicy=policy) == [f"spec.successPolicy{field}"]


def test_success_policy_is_for_indexed_jobs() -> None:
    assert refused(successPolicy={"rules": [{"succeededCount": 1}]}) == ["spec.successPolicy"]


def test_names_of_jobs_are_labels_and_hosts() -> None:
    assert fields(JOB, made(name="a.b")) == []
    assert fields(JOB, made(name="1")) == []
    assert fields(JOB, made(name="a" * 63)) == []
    assert "metadata.name" in fields(JOB, made(name="a" * 64))
    assert fields(JOB, made(name="a" * 61, **INDEXED)) == []
    assert fields(JOB, made(name="a" * 62, **INDEXED)) == ["metadata.name"]
    assert fields(JOB, made(name="a.b", **INDEXED)) == ["metadata.name"]
    assert fields(CRONJOB, cronjob("a" * 52)) == []
    assert fields(CRONJOB, cronjob("a" * 53)) == ["metadata.name"]


# --- updates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "ok"),
    [
        ("parallelism", 3, True),
        ("backoffLimit", 3, True),
        ("suspend", True, True),
        ("ttlSecondsAfterFinished", 3, True),
        ("activeDeadlineSeconds", 3, True),
        ("completions", 5, False),
        ("completionMode", "Indexed", False),
        ("selector", {"matchLabels": {UID_LABEL: "x"}}, False),
        ("managedBy", "example.com/x", False),
        ("podReplacementPolicy", "Failed", False),
        ("template", template("other", restartPolicy="Never"), False),
    ],
)
def test_what_of_a_job_may_change(field: str, value: Any, ok: bool) -> None:
    old = complete(JOB, made(completions=4))
    new = copy.deepcopy(old)
    new["spec"][field] = value
    assert fields(JOB, new, old) == ([] if ok else [f"spec.{field}"])


@pytest.mark.parametrize(
    ("completions", "parallelism", "finished", "ok"),
    [(6, 6, False, True), (6, 4, False, False), (6, 6, True, False), (2, 2, False, True)],
)
def test_check_72_indexed_jobs_scale_with_their_parallelism(
    completions: int,
    parallelism: int,
    finished: bool,
    ok: bool,
) -> None:
    old = complete(JOB, made(**INDEXED))
    if finished:
        old["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    new = copy.deepcopy(old)
    new["spec"] |= {"completions": completions, "parallelism": parallelism}
    assert fields(JOB, new, old) == ([] if ok else ["spec.completions"])


def test_check_72_suspended_jobs_may_be_placed_elsewhere() -> None:
    old = complete(JOB, made(suspend=True))
    new = copy.deepcopy(old)
    new["spec"]["suspend"] = False
    new["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    container = new["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "2"}}
    assert fields(JOB, new, old) == []
    old["status"] = {"active": 1}
    assert fields(JOB, new, old) == ["spec.template"]
    del old["status"]
    container["image"] = "another"
    assert fields(JOB, new, old) == ["spec.template"]


# --- CronJob -----------------------------------------------------------------------------------------


def test_cronjobs_get_the_defaults_of_kubernetes() -> None:
    spec = complete(CRONJOB, cronjob())["spec"]
    del spec["jobTemplate"]
    assert spec == {
        "schedule": "0 * * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedule": ""}, "schedule"),
        ({"schedule": "* * * *"}, "schedule"),
        ({"schedule": "61 * * * *"}, "schedule"),
        ({"schedule": "TZ=UTC 0 * * * *"}, "schedule"),
        ({"schedule": "CRON_TZ=UTC @every 5m"}, "schedule"),
        ({"schedule": "@every 5"}, "schedule"),
        ({"timeZone": ""}, "timeZone"),
        ({"timeZone": "Mars/Olympus"}, "timeZone"),
        ({"timeZone": "Local"}, "timeZone"),
        ({"concurrencyPolicy": "Maybe"}, "concurrencyPolicy"),
        ({"startingDeadlineSeconds": -1}, "startingDeadlineSeconds"),
        ({"successfulJobsHistoryLimit": -1}, "successfulJobsHistoryLimit"),
        ({"failedJobsHistoryLimit": -1}, "failedJobsHistoryLimit"),
        ({"jobTemplate": {}}, "jobTemplate.spec"),
        ({"jobTemplate": {"spec": {"template": {}}}}, "jobTemplate.spec.template"),
        (
            {"jobTemplate": {"spec": {"template": template()}}},
            "jobTemplate.spec.template.spec.restartPolicy",
        ),
        (
            {"jobTemplate": {"spec": {"template": NEVER, "manualSelector": True}}},
            "jobTemplate.spec.manualSelector",
        ),
        (
            {"jobTemplate": {"spec": {"template": NEVER, "parallelism": -1}}},
            "jobTemplate.spec.parallelism",
        ),
    ],
)
def test_cronjobs_that_cannot_run_are_refused(spec: Document, field: str) -> None:
    assert fields(CRONJOB, cronjob(**spec)) == [f"spec.{field}"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Etc/UTC"])
def test_cronjobs_have_time_zones(zone: str) -> None:
    assert fields(CRONJOB, cronjob(timeZone=zone, schedule="@daily")) == []


# --- columns and definitions -------------------------------------------------------------------------


def cells(info: Any, document: Document, now: str) -> Document:
    seconds = timestamps.parse(now).timestamp()
    [row] = tables.rows(info, [document], now=seconds, include="None")
    return dict(zip([c.name for c in tables.columns_of(info)], row["cells"], strict=True))


START, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:05Z"


@pytest.mark.parametrize(
    ("spec", "status", "state", "completions", "duration"),
    [
        ({"completions": 3}, {}, "Running", "0/3", ""),
        ({"parallelism": 1}, {"succeeded": 1}, "Running", "1/1", ""),
        ({"parallelism": 4}, {"succeeded": 2}, "Running", "2/1 of 4", ""),
        ({"completions": 3}, {"startTime": START}, "Running", "0/3", "65s"),
        (
            {"completions": 1},
            {
                "succeeded": 1,
                "startTime": START,
                "completionTime": "2026-01-01T00:00:05Z",
                "conditions": [
                    {"type": "SuccessCriteriaMet", "status": "True"},
                    {"type": "Complete", "status": "True"},
                ],
            },
            "Complete",
            "1/1",
            "5s",
        ),
        (
            {"completions": 1},
            {
                "startTime": START,
                "conditions": [
                    {
                        "type": "Failed",
                        "status": "True",
                        "lastTransitionTime": "2026-01-01T00:00:07Z",
                    }
                ],
            },
            "Failed",
            "0/1",
            "7s",
        ),
        (
            {"completions": 1},
            {"conditions": [{"type": "Suspended", "status": "True"}]},
            "Suspended",
            "0/1",
            "",
        ),
    ],
)
def test_jobs_are_printed_as_kubectl_prints_them(
    spec: Document, status: Document, state: str, completions: str, duration: str
) -> None:
    shown = cells(JOB, {**made(**spec), "status": status}, LATER)
    assert [*shown][:5] == ["Name", "Status", "Completions", "Duration", "Age"]
    assert (shown["Status"], shown["Completions"], shown["Duration"]) == (
        state,
        completions,
        duration,
    )
    assert (shown["Containers"], shown["Images"]) == ("main", "trainer:1")


def test_cronjobs_are_printed_as_kubectl_prints_them() -> None:
    document = complete(CRONJOB, cronjob())
    document["status"] = {"active": [{"name": "a"}], "lastScheduleTime": START}
    assert cells(CRONJOB, document, LATER) == {
        "Name": "report",
        "Schedule": "0 * * * *",
        "Timezone": "<none>",
        "Suspend": "False",
        "Active": 1,
        "Last Schedule": "65s",
        "Age": "<unknown>",
        "Containers": "main",
        "Images": "trainer:1",
        "Selector": "<none>",
    }


def test_jobs_are_served_by_clusters_themselves() -> None:
    assert not {JOB, CRONJOB} & {*crds.installable(BUILT_IN)}


def test_images_that_no_node_runs_are_warned_about() -> None:
    bare = copy.deepcopy(NEVER)
    del bare["spec"]["containers"][0]["command"]
    document = complete(JOB, made(template=bare))
    assert any("containers[0].command" in warning for warning in JOB.review(document, None, NOW))
    assert list(JOB.review(document, document, NOW)) == []
    repeated = complete(CRONJOB, cronjob(jobTemplate={"spec": {"template": bare}}))
    [first, *_] = CRONJOB.review(repeated, None, NOW)
    assert first.startswith("spec.jobTemplate.spec.template.spec.containers[0].command")


def test_job_views_read_their_documents() -> None:
    document = complete(JOB, made(**INDEXED, backoffLimitPerIndex=1))
    view = codec.decode_view(codec.encode(document), JOB.view)
    assert (view.spec.completions, view.spec.backoff_limit_per_index) == (4, 1)
    repeated = complete(CRONJOB, cronjob())
    assert codec.decode_view(codec.encode(repeated), CRONJOB.view).spec.schedule == "0 * * * *"
